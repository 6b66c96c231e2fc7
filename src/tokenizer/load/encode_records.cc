// Tokenizes many strings, to compare with other tokenizers (tests/golden/compare_tokenizers.py):
//   encode_records MODEL ADD_SPECIAL PARSE_SPECIAL SHOW_SPECIAL < records > answers
// MODEL is a path for OpenTokenizer. A record is a 32-bit length and that many bytes. An answer is
// a 32-bit count, that many 32-bit ids, a 32-bit length, and the text to which the ids decode.
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tokenizer/load/open_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace tokamak {
namespace {

Status Run(const std::string& model, EncodeOptions options, bool show_special) {
  ASSIGN_OR_RETURN(const auto tokenizer, OpenTokenizer(model));
  uint32_t size = 0;
  while (std::fread(&size, sizeof size, 1, stdin) == 1) {
    if (size > Tokenizer::kMaxTextBytes) return InvalidArgument("a record of {} bytes", size);
    std::string text(size, '\0');
    if (std::fread(text.data(), 1, size, stdin) != size) return DataLoss("a cut-off record");
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer->Encode(text, options));
    const auto count = static_cast<uint32_t>(ids.size());
    std::fwrite(&count, sizeof count, 1, stdout);
    std::fwrite(ids.data(), sizeof(int32_t), count, stdout);
    ASSIGN_OR_RETURN(text, tokenizer->Decode(ids, {.skip_special = !show_special}));
    size = static_cast<uint32_t>(text.size());
    std::fwrite(&size, sizeof size, 1, stdout);
    std::fwrite(text.data(), 1, size, stdout);
  }
  return Status();
}

}  // namespace
}  // namespace tokamak

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr,
                 "usage: encode_records MODEL ADD_SPECIAL PARSE_SPECIAL SHOW_SPECIAL < records\n");
    return 2;
  }
  const std::string_view add = argv[2], parse = argv[3], show = argv[4];
  const tokamak::Status status = tokamak::Run(argv[1], {add == "1", parse == "1"}, show == "1");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
