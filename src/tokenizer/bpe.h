// Byte-pair encoding by merge rank (Sennrich et al. 2016, arXiv:1508.07909; byte-level as GPT-2).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokamak/status.h"
#include "tokenizer/text_model.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// `pieces` are the bytes of each token of `spec` (the model keeps views of them: they must outlive
// it). Fails on an unknown pre-tokenizer or a merge that is not two parts.
Result<std::unique_ptr<const TextModel>> CreateBpe(const VocabSpec& spec,
                                                   const std::vector<std::string>& pieces);

}  // namespace tokamak
