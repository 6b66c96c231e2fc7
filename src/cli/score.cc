// tokamak score: the likelihood of a text, token by token.
#include <cmath>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/json_output.h"

namespace tokamak::cli {
namespace {

constexpr char kExamples[] =
    "  tokamak score --text book.txt\n"
    "  tokamak score model.gguf --token-ids 1,2,3 --top 5 --json\n"
    "  echo \"Paris is the capital of France.\" | tokamak score --text -\n";

struct ScoreFlags {
  EngineOptions engine{.max_logprobs = -1};
  std::string text_file;
  std::optional<std::vector<int32_t>> token_ids;
  int32_t top = 0;
  bool parse_special = false;
  bool json = false;
};

Result<Score> Compute(const ScoreFlags& flags, Engine& engine) {
  Score score;
  if (flags.token_ids) {
    score.token_ids = *flags.token_ids;
  } else {
    ASSIGN_OR_RETURN(const std::string text, ReadText(flags.text_file));
    ASSIGN_OR_RETURN(score.token_ids, engine.Tokenize(text, true, flags.parse_special));
  }
  if (score.token_ids.size() < 2) {
    return InvalidArgument("scoring needs at least two tokens, got {}", score.token_ids.size());
  }
  Request request;
  request.token_ids = score.token_ids;
  request.sampling.max_tokens = 0;
  request.sampling.prompt_logprobs = flags.top;
  ASSIGN_OR_RETURN(auto answers, engine.Generate(std::move(request)));
  if (!answers[0].error.ok()) return answers[0].error;
  score.logprobs = std::move(answers[0].prompt_logprobs);
  if (score.logprobs.size() + 1 != score.token_ids.size()) {
    return Internal("{} logprobs for {} tokens", score.logprobs.size(), score.token_ids.size());
  }
  double sum = 0;
  for (const TokenLogprobs& token : score.logprobs) sum += token.token.logprob;
  score.mean_logprob = sum / static_cast<double>(score.logprobs.size());
  score.perplexity = std::exp(-score.mean_logprob);
  return score;
}

void Print(const Score& score, const Engine& engine) {
  for (size_t i = 0; i < score.logprobs.size(); ++i) {
    const TokenLogprobs& token = score.logprobs[i];
    std::printf("%10.5f  %6d %s", token.token.logprob, token.token.token_id,
                QuoteText(engine.Detokenize({token.token.token_id})).c_str());
    for (const TokenLogprobs::Entry& top : token.top) {
      std::printf("  %s %.3f", QuoteText(engine.Detokenize({top.token_id})).c_str(), top.logprob);
    }
    std::printf("\n");
  }
  std::printf("tokens %zu, mean logprob %.6f, perplexity %.4f\n", score.token_ids.size(),
              score.mean_logprob, score.perplexity);
}

int Run(const ScoreFlags& flags) {
  if (flags.text_file.empty() == !flags.token_ids) {
    return UsageError("give exactly one of --text FILE and --token-ids IDS");
  }
  if (flags.top < 0) return UsageError("--top must not be negative");
  Result<std::unique_ptr<Engine>> engine = LoadEngine(flags.engine);
  if (!engine.ok()) return Fail(engine.status());
  const Result<Score> score = Compute(flags, **engine);
  if (!score.ok()) return Fail(score.status());
  if (flags.json) {
    std::printf("%s\n", ScoreJson(*score).c_str());
  } else {
    Print(*score, **engine);
  }
  return kOk;
}

}  // namespace

void AddScoreCommand(CommandLine& line) {
  auto flags = std::make_shared<ScoreFlags>();
  Flags f = line.Command("score", "Show the logprob of every token of a text", kExamples,
                         [flags] { return Run(*flags); });
  f.Add("--text", flags->text_file, "File with the text; - is stdin");
  f.Add("--token-ids", flags->token_ids, "Token ids to score instead of a text");
  f.Add("--top", flags->top, "Also show the K most likely tokens at each position");
  f.Add("--parse-special", flags->parse_special,
        "Read \"<|im_start|>\" and the like in the text as special tokens");
  f.Add("--json", flags->json, "Print one JSON object");
  AddEngineFlags(f, flags->engine);
}

}  // namespace tokamak::cli
