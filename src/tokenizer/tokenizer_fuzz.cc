// Encodes and decodes any bytes with a tiny vocabulary of each kind. The first byte picks the
// vocabulary, the second the options; the rest is the text and, as pairs of bytes, token ids.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/stop_strings.h"
#include "tokenizer/testing/tiny_vocabs.h"
#include "tokenizer/tokenizer.h"

namespace tokamak {
namespace {

using Ids = std::vector<int32_t>;

struct Subject {
  std::shared_ptr<const Tokenizer> tokenizer;
  bool gives_back;      // decoding restores every text
  bool escapes_spaces;  // ▁ is not restored: it spells a space
};

std::vector<Subject> MakeSubjects() {
  std::vector<Subject> subjects;
  std::vector<GgufVocab> specs = testing::AllTinyVocabs();
  for (const char* name : {"deepseek-v3", "tiny_aya", "kimi-k2", "superbpe", "exaone-moe", "falcon",
                           "jais-2", "bloom", "chameleon", "default"}) {
    specs.push_back(testing::TinyBytePairs(name));
  }
  for (GgufVocab& spec : specs) {
    const bool normalizes = spec.pre_tokenizer == "qwen2";
    const bool bpe = spec.kind == TokenizerKind::kBpe;
    const bool escapes =
        spec.pre_tokenizer == "gemma4" || spec.kind == TokenizerKind::kSentencePieceBpe;
    const bool gives_back = (bpe && !normalizes) || escapes;
    subjects.push_back({*testing::MakeTokenizer(std::move(spec)), gives_back, escapes});
  }
  return subjects;
}

void CheckText(const Subject& subject, std::string_view text, EncodeOptions options) {
  const Ids ids = *subject.tokenizer->Encode(text, options);
  const std::string repaired = ToValidUtf8(text);
  CHECK(ids == *subject.tokenizer->Encode(repaired, options));
  CHECK(ids.size() <= text.size() * 3 + 4);
  const std::string decoded =
      *subject.tokenizer->Decode(ids, {.skip_special = !options.parse_special});
  CHECK(ValidUtf8Prefix(decoded) == decoded.size());
  if (!subject.gives_back || options.parse_special) return;
  if (subject.escapes_spaces && repaired.find("\u2581") != std::string::npos) return;
  // SentencePiece kinds add a space after each token found verbatim in the text.
  if (subject.tokenizer->drops_leading_space() && repaired.find("<tool>") != std::string::npos) {
    return;
  }
  CHECK(decoded == repaired);
}

void CheckIds(const Subject& subject, std::string_view bytes, uint8_t flags) {
  Ids ids;
  const auto size = static_cast<uint32_t>(subject.tokenizer->vocab_size());
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const uint32_t pair = static_cast<uint8_t>(bytes[i]) << 8 | static_cast<uint8_t>(bytes[i + 1]);
    ids.push_back(static_cast<int32_t>(pair % size));
  }
  const DecodeOptions options = {.skip_special = (flags & 1) != 0,
                                 .continuation = (flags & 2) != 0};
  const std::string whole = *subject.tokenizer->Decode(ids, options);
  Detokenizer stream(subject.tokenizer, options);
  // Stop strings taken from the input: the matcher passes the text up to the first.
  const std::string stop(whole.substr(0, Utf8Length(whole.empty() ? 'x' : whole[0])));
  auto matcher = StopStringMatcher::Create({"the", stop.empty() ? "x" : stop, "<|im_end|>"});
  CHECK(matcher.ok());
  std::string text, shown;
  for (const int32_t id : ids) {
    const std::string step = stream.Append(id);
    CHECK(ValidUtf8Prefix(step) == step.size());
    text += step;
    shown += matcher->Append(step);
  }
  const std::string rest = stream.Flush();
  text += rest;
  shown += matcher->Append(rest);
  shown += matcher->Flush();
  CHECK(text == whole);
  CHECK(whole.starts_with(shown));
  if (!matcher->matched()) {
    CHECK(shown == whole);
  } else {
    CHECK(whole.substr(shown.size()).starts_with(matcher->matched_string()));
  }
}

}  // namespace
}  // namespace tokamak

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* subjects = new std::vector<tokamak::Subject>(tokamak::MakeSubjects());
  if (size < 2) return 0;
  const tokamak::Subject& subject = (*subjects)[data[0] % subjects->size()];
  const uint8_t flags = data[1];
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (flags & 4) {
    tokamak::CheckIds(subject, bytes, flags);
  } else {
    tokamak::CheckText(subject, bytes,
                       {.add_special = (flags & 1) != 0, .parse_special = (flags & 2) != 0});
  }
  return 0;
}
