#include "cli/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/common.h"
#include "cli/conversation.h"

namespace tokamak::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Flags, ReadsSizes) {
  EXPECT_EQ(ParseBytes("0").value(), 0);
  EXPECT_EQ(ParseBytes("4096").value(), 4096);
  EXPECT_EQ(ParseBytes("512M").value(), int64_t{512} << 20);
  EXPECT_EQ(ParseBytes("512m").value(), int64_t{512} << 20);
  EXPECT_EQ(ParseBytes("2GiB").value(), int64_t{2} << 30);
  EXPECT_EQ(ParseBytes("3KB").value(), 3 << 10);
  for (const char* bad : {"", "x", "-1", "1.5G", "2Q", "G", "99999999999999999999", "9999999T",
                          "1 G", "iB", "0x10"}) {
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  }
}

TEST(Flags, ReadsLists) {
  EXPECT_THAT(ParseIntList("1,2,-3").value(), ElementsAre(1, 2, -3));
  EXPECT_THAT(ParseIntList("1, 2").value(), ElementsAre(1, 2));
  EXPECT_THAT(ParseIntList("").value(), ElementsAre());
  for (const char* bad : {"x", "1,x", "1,,2", "1.5", "3000000000", "1;2"}) {
    EXPECT_FALSE(ParseIntList(bad).ok()) << bad;
  }
}

// Runs a command line with one command, "go", and returns its exit code.
struct Line {
  CommandLine line{"test", "A test.", "test 1"};
  int ran = 0;
  Flags flags = line.Command("go", "Goes", "  test go\n", [this] { return ++ran, 7; });

  int Run(std::vector<std::string> args) {
    args.insert(args.begin(), "test");
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    return line.Run(static_cast<int>(argv.size()), argv.data());
  }
};

TEST(Flags, GivesTheCommandItsValues) {
  Line line;
  std::string model, text = "default";
  std::vector<std::string> stop;
  std::optional<std::vector<int32_t>> ids;
  std::optional<uint64_t> seed;
  bool json = false;
  line.flags.Add("model", model, "");
  line.flags.Add("--text", text, "");
  line.flags.Add("--stop", stop, "");
  line.flags.Add("--ids", ids, "");
  line.flags.Add("--seed", seed, "");
  line.flags.Add("--json", json, "");
  EXPECT_EQ(line.Run({"go", "m.gguf", "--stop", "a b", "--stop", "c,d", "--ids", "1,2", "--seed",
                      "18446744073709551615", "--json"}),
            7);
  EXPECT_EQ(line.ran, 1);
  EXPECT_EQ(model, "m.gguf");
  EXPECT_EQ(text, "default");
  EXPECT_THAT(stop, ElementsAre("a b", "c,d"));
  EXPECT_THAT(*ids, ElementsAre(1, 2));
  EXPECT_EQ(seed, UINT64_MAX);
  EXPECT_TRUE(json);
}

TEST(Flags, WrongFlagsExitWithTwoAndRunNothing) {
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{},
                                             {"stop"},
                                             {"go", "--no"},
                                             {"go", "--n", "x"},
                                             {"go", "--n", "99999999999"},
                                             {"go", "--size", "2Q"},
                                             {"go", "--n"},
                                             {"go", "extra"}}) {
    Line line;
    int32_t n = 0;
    int64_t size = 0;
    line.flags.Add("--n", n, "");
    line.flags.AddBytes("--size", size, "");
    EXPECT_EQ(line.Run(args), 2);
    EXPECT_EQ(line.ran, 0);
  }
}

TEST(Flags, NamesAnUnknownCommand) {
  for (const auto& [args, error] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"gone"}, "\"gone\" is not a command of test; its commands are go, bench"},
           {{"gone", "--x", "y"}, "\"gone\" is not a command of test"},
           {{"bench", "gone"},
            "\"gone\" is not a command of test bench; its commands are one, two"},
           {{"bench", "one", "x"}, "x\nTry: test bench one --help"}}) {
    Line line;
    line.line.Command("bench one", "One", "", [] { return 0; });
    line.line.Command("bench two", "Two", "", [] { return 0; });
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(line.Run(args), 2);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(error));
  }
}

TEST(Flags, ListsCommandsIfNoneIsGiven) {
  for (const auto& [args, text] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{},
            "A test.\n"
            "Usage: test COMMAND [OPTIONS]\n\n"
            "Commands:\n"
            "  go            Goes\n"
            "  bench         One; Two\n\n"
            "test COMMAND --help describes a command.\n"},
           {{"bench"},
            "Usage: test bench COMMAND [OPTIONS]\n\n"
            "Commands:\n"
            "  one           One\n"
            "  two           Two\n\n"
            "test bench COMMAND --help describes a command.\n"}}) {
    Line line;
    line.line.Command("bench one", "One", "", [] { return 0; });
    line.line.Command("bench two", "Two", "", [] { return 0; });
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(line.Run(args), 2);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), text);
  }
}

TEST(Flags, AnIntegerWithoutASignDoesNotWrapAround) {
  for (const char* wrong : {"-1", "1.5", "18446744073709551616", "x", ""}) {
    Line line;
    std::optional<uint64_t> seed;
    line.flags.Add("--seed", seed, "");
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(line.Run({"go", "--seed", wrong}), 2) << wrong;
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("is not an integer from 0 to 18446744073709551615"));
    EXPECT_EQ(line.ran, 0);
    EXPECT_FALSE(seed.has_value());
  }
}

TEST(Flags, AnOptionWithNamesTakesNoOther) {
  for (const char* wrong : {"eager", "graph", "true", "ON", "", "0", "on,off"}) {
    Line line;
    CudaGraphs graphs = CudaGraphs::kAuto;
    line.flags.Add("--cuda-graphs", graphs, "");
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(line.Run({"go", "--cuda-graphs", wrong}), 2) << wrong;
    EXPECT_THAT(
        ::testing::internal::GetCapturedStderr(),
        HasSubstr(std::string("--cuda-graphs: \"") + wrong + "\" is not one of auto, on, off"));
    EXPECT_EQ(graphs, CudaGraphs::kAuto);
    EXPECT_EQ(line.Run({"go", "--cuda-graphs", "off"}), 7);
    EXPECT_EQ(graphs, CudaGraphs::kOff);
  }
}

template <typename Option>
void ExpectNamed(std::initializer_list<std::pair<std::string_view, Option>> names) {
  for (const auto& [name, value] : names) {
    EXPECT_EQ(Name(value), name);
    EXPECT_EQ(ParseOption<Option>(name), value) << name;
  }
}

// Records and users' scripts have these names.
TEST(OptionNames, AreThoseOfTheDocumentation) {
  ExpectNamed<KernelChoice>({{"verified", KernelChoice::kVerified},
                             {"new", KernelChoice::kNew},
                             {"plain", KernelChoice::kPlain},
                             {"triton", KernelChoice::kTriton}});
  ExpectNamed<AttentionKernels>(
      {{"own", AttentionKernels::kOwn}, {"flashinfer", AttentionKernels::kFlashInfer}});
  ExpectNamed<CudaGraphs>(
      {{"auto", CudaGraphs::kAuto}, {"on", CudaGraphs::kOn}, {"off", CudaGraphs::kOff}});
  ExpectNamed<KvCacheDtype>({{"auto", KvCacheDtype::kAuto},
                             {"f32", KvCacheDtype::kF32},
                             {"f16", KvCacheDtype::kF16},
                             {"bf16", KvCacheDtype::kBF16},
                             {"fp8", KvCacheDtype::kFp8},
                             {"q8_0", KvCacheDtype::kQ8_0}});
  ExpectNamed<MlaForm>({{"standard", MlaForm::kStandard},
                        {"latent", MlaForm::kLatent},
                        {"absorbed", MlaForm::kAbsorbed},
                        {"auto", MlaForm::kAuto}});
  ExpectNamed<Speculation>({{"auto", Speculation::kAuto},
                            {"off", Speculation::kOff},
                            {"ngram", Speculation::kNgram},
                            {"draft", Speculation::kDraft}});
  ExpectNamed<Pooling>({{"auto", Pooling::kAuto},
                        {"mean", Pooling::kMean},
                        {"cls", Pooling::kCls},
                        {"last", Pooling::kLast}});
  EXPECT_EQ(ParseOption<MlaForm>("fast"), std::nullopt);
}

TEST(Cli, MessagesOfTheLibraryNameFlags) {
  for (const auto& [message, shown] : std::vector<std::pair<std::string, std::string>>{
           {"device: must be cpu", "--device: must be cpu"},
           {"the device: it failed", "the device: it failed"},
           {"m.gguf: needs MLA; use device=cpu", "m.gguf: needs MLA; use --device=cpu"},
           {"lower kv_cache_bytes, max_batch_tokens, max_seqs or max_context",
            "lower --kv-cache-memory, --max-batch-tokens, --max-seqs or --max-context"},
           {"/tmp/max_seqs/a.gguf: max_seqs.gguf", "/tmp/max_seqs/a.gguf: max_seqs.gguf"},
           {"tls_key_file=a.pem: is not the key", "--tls-key=a.pem: is not the key"},
           {"vocab_size: kernels and threads", "vocab_size: kernels and threads"},
           {"at 10 °C, max_queue", "at 10 °C, --max-queue"},
           {"top_p: must be in (0, 1], got 5", "--top-p: must be in (0, 1], got 5"},
           {"n: must be in [1, 128]", "--n: must be in [1, 128]"},
           {"beam_search.width: must be", "--num-beams: must be"},
           {"dry_sequence_breakers[1]: must have", "--dry-sequence-breaker[1]: must have"},
           {"", ""}}) {
    EXPECT_EQ(WithFlags(message), shown);
  }
}

SamplingDefaults ParseDefaults(std::vector<std::string> args) {
  SamplingDefaults defaults;
  CommandLine line("tokamak", "A test.", "1");
  Flags flags = line.Command("serve", "", "", [] { return 0; });
  AddDefaultSamplingFlags(flags, defaults);
  args.insert(args.begin(), {"tokamak", "serve"});
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  std::function<int()> run;
  line.Parse(static_cast<int>(argv.size()), argv.data(), &run);
  EXPECT_NE(run, nullptr);
  return defaults;
}

TEST(Cli, MessagesNameTheFlagsOfSamplingDefaults) {
  const std::string flags =
      "--temperature --dynatemp-range --dynatemp-exponent --top-n-sigma --top-k --top-p --min-p "
      "--typical-p --xtc-probability --xtc-threshold --repetition-penalty --presence-penalty "
      "--frequency-penalty --repeat-last-n --dry-multiplier --dry-base --dry-allowed-length "
      "--dry-penalty-last-n --dry-sequence-breaker --thinking-token-budget ";
  std::vector<std::string> args;
  std::istringstream words(flags);
  for (std::string flag; words >> flag;) args.push_back(flag + "=1");
  std::string named;
  ParseDefaults(args).ForEach([&](const std::string& field, const auto&) {
    const std::string message = WithFlags(field + ": it is wrong");
    named += message.substr(0, message.find(':')) + ' ';
  });
  EXPECT_EQ(named, flags);
}

TEST(Cli, ReadsSequenceBreakers) {
  const auto read = [](const std::vector<std::string>& args) {
    SamplingParams params;
    ParseDefaults(args).ApplyTo(params);
    return params.dry_sequence_breakers;
  };
  const std::string flag = "--dry-sequence-breaker";
  EXPECT_EQ(read({}), SamplingParams().dry_sequence_breakers);
  EXPECT_THAT(read({flag, "a,b", flag, "\\n"}), ElementsAre("a,b", "\\n"));
  EXPECT_THAT(read({flag, "none"}), ElementsAre());
  EXPECT_THAT(read({flag, "a", flag, "none", flag, "b"}), ElementsAre("b"));
}

TEST(Cli, ReadsLogitBias) {
  SamplingFlags flags;
  flags.logit_bias = {"42=-1.5", "7=100"};
  EXPECT_THAT(MakeSampling(flags).value().logit_bias,
              ElementsAre(std::pair(42, -1.5f), std::pair(7, 100.0f)));
  for (const char* bad : {"42", "=1", "a=1", "1=x", "1=2x", ""}) {
    flags.logit_bias = {bad};
    EXPECT_FALSE(MakeSampling(flags).ok()) << bad;
  }
}

TEST(Cli, EscapesControlCharactersOfTerminals) {
  EXPECT_EQ(QuoteText("a\n\"\\\x1b[31m\x7f é"), "\"a\\n\\\"\\\\\\x1b[31m\\x7f é\"");
}

TEST(Conversation, CompletesTextWhereTheModelHasNoTemplate) {
  Conversation conversation(ModelInfo{}, "");
  EXPECT_FALSE(conversation.chat());
  EXPECT_FALSE(conversation.note().empty());
  conversation.AddUser("Once");
  const Request request = *conversation.MakeRequest({});
  EXPECT_EQ(request.prompt, "Once");
  EXPECT_TRUE(request.add_special_tokens);
}

TEST(Conversation, RendersAllTurnsWithTheSystemMessage) {
  ModelInfo model;
  model.chat_template =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
      "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\\n' }}{% endif %}";
  Conversation conversation(model, "S");
  conversation.AddUser("a");
  conversation.AddAnswer("b");
  conversation.AddUser("c");
  const Request request = *conversation.MakeRequest({});
  EXPECT_EQ(request.prompt,
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant"
            "\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_FALSE(request.add_special_tokens);
  EXPECT_TRUE(request.parse_special_tokens);
  EXPECT_TRUE(conversation.DropLast());
  EXPECT_EQ(conversation.size(), 2u);
  conversation.Clear();
  EXPECT_FALSE(conversation.DropLast());
}

TEST(Conversation, LeavesReasoningOutOfLaterRequests) {
  const std::string shows_all =
      "{% for message in messages %}{{ '<' + message['role'] + '>' + message['content'] }}"
      "{% endfor %}{{ '<assistant>' }}";
  ModelInfo model;
  for (const auto& [end_of_prompt, answer] : std::vector<std::pair<std::string, std::string>>{
           {"", "<think>\nhmm, 1 < 2\n</think>\n\nb"},
           {"{{ '<think>\\n' }}", "hmm\n</think>\n\nb"},
           {"{# </think> #}", "<think>hmm</think>b"},
           {"{# [/THINK] #}", "[THINK]hmm[/THINK]b"},
           {"{# <|channel|>analysis<|message|> #}",
            "<|channel|>analysis<|message|>hmm<|end|><|start|>assistant<|channel|>final<|message|>"
            "b"},
           {"", "b"}}) {
    model.chat_template = shows_all + end_of_prompt;
    Conversation conversation(model, "");
    conversation.AddUser("a");
    ASSERT_TRUE(conversation.MakeRequest({}).ok());
    conversation.AddAnswer(answer);
    conversation.AddUser("c");
    const std::string prompt = *conversation.MakeRequest({})->prompt;
    EXPECT_EQ(prompt.substr(0, prompt.rfind("<assistant>")), "<user>a<assistant>b<user>c")
        << answer;
  }
  // If an answer was stopped while the model was reasoning, its content is empty.
  model.chat_template = shows_all;
  Conversation conversation(model, "");
  conversation.AddUser("a");
  ASSERT_TRUE(conversation.MakeRequest({}).ok());
  conversation.AddAnswer("<think>hmm");
  EXPECT_EQ(conversation.MakeRequest({})->prompt, "<user>a<assistant><assistant>");
}

TEST(Conversation, ReturnsTheErrorsOfTheTemplate) {
  ModelInfo model;
  model.chat_template =
      "{% if messages[0].role == 'system' %}{{ raise_exception('No system here') }}{% endif %}x";
  Conversation conversation(model, "S");
  conversation.AddUser("a");
  EXPECT_EQ(conversation.MakeRequest({}).status().message(), "No system here");
}

}  // namespace
}  // namespace tokamak::cli
