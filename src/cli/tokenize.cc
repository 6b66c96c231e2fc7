// tokamak tokenize: the token ids and pieces of a text.
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/json_output.h"
#include "tokenizer/load/open_tokenizer.h"

namespace tokamak::cli {
namespace {

constexpr char kExamples[] =
    "  tokamak tokenize --string \"Hello world\"\n"
    "  tokamak tokenize --text book.txt --json\n"
    "  cat book.txt | tokamak tokenize model.gguf - --json\n";

struct TokenizeFlags {
  std::string model;
  std::string dash;
  std::string text_file;
  std::optional<std::string> string;
  bool parse_special = false;
  bool no_special = false;
  bool json = false;
};

Result<std::string> Text(const TokenizeFlags& flags) {
  if (flags.string) return *flags.string;
  return ReadText(flags.text_file.empty() ? "-" : flags.text_file);
}

Status Tokenize(const TokenizeFlags& flags) {
  ASSIGN_OR_RETURN(const std::string path, ResolveModel(flags.model));
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer, OpenTokenizer(path));
  ASSIGN_OR_RETURN(const std::string text, Text(flags));
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                   tokenizer->Encode(text, {.add_special = !flags.no_special,
                                            .parse_special = flags.parse_special}));
  ASSIGN_OR_RETURN(const std::vector<TokenDescription> tokens, tokenizer->Describe(ids));
  if (flags.json) {
    std::vector<Piece> pieces;
    for (const TokenDescription& token : tokens) pieces.push_back({token.id, token.text});
    std::printf("%s\n", TokenizeJson(pieces).c_str());
    return Status();
  }
  for (const TokenDescription& token : tokens) {
    std::printf("%7d %s\n", token.id, QuoteText(token.text).c_str());
  }
  return Status();
}

int Run(TokenizeFlags flags) {
  if (flags.model == "-" && flags.dash.empty()) std::swap(flags.model, flags.dash);
  if (!flags.dash.empty() && flags.dash != "-") {
    return UsageError("the second argument can only be - (stdin); give a file with --text");
  }
  const int sources =
      (flags.dash.empty() ? 0 : 1) + (flags.text_file.empty() ? 0 : 1) + (flags.string ? 1 : 0);
  if (sources != 1) return UsageError("give exactly one of --text FILE, --string TEXT and -");
  const Status status = Tokenize(flags);
  return status.ok() ? kOk : Fail(status);
}

}  // namespace

void AddTokenizeCommand(CommandLine& line) {
  auto flags = std::make_shared<TokenizeFlags>();
  Flags f = line.Command("tokenize", "Show the tokens of a text", kExamples,
                         [flags] { return Run(*flags); });
  AddModel(f, flags->model);
  f.Add("stdin", flags->dash, "- to read the text from stdin");
  f.Add("--text", flags->text_file, "File with the text; - is stdin");
  f.Add("--string", flags->string, "The text to tokenize");
  f.Add("--parse-special", flags->parse_special,
        "Read \"<|im_start|>\" and the like in the text as special tokens");
  f.Add("--no-special", flags->no_special, "Leave out the begin-of-text and end-of-text tokens");
  f.Add("--json", flags->json, "Print one JSON object: token_ids, pieces");
}

}  // namespace tokamak::cli
