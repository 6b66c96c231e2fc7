// Byte-pair encoding by merge rank (Sennrich et al. 2016, arXiv:1508.07909; on bytes as in GPT-2).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokamak/status.h"
#include "tokenizer/text_model.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// `token_bytes` has the bytes of each token of `spec` and must outlive the model. Fails on an
// unknown pre-tokenizer or a merge that does not have two parts.
Result<std::unique_ptr<const TextModel>> CreateBpe(const VocabSpec& spec,
                                                   const std::vector<std::string>& token_bytes);

}  // namespace tokamak
