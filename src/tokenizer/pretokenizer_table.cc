// The rules are those of the models' own tokenizer.json. GGUF tools approximate some patterns (no
// case classes outside ASCII, no Unicode case folding); the originals here are what the models were
// trained with.
#include "tokenizer/pretokenizer_table.h"

// White space is spelled out because PCRE2's \s includes U+180E, unlike the Unicode property
// White_Space and the engines that models use. SPACES goes inside a character class.
#define WIDE_SPACES \
  "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define SPACES "\\x{9}-\\x{d}\\x{20}" WIDE_SPACES
#define INLINE_SPACES "\\x{9}\\x{b}\\x{c}\\x{20}" WIDE_SPACES
#define SPACE "[" SPACES "]"
#define NOT_SPACE "[^" SPACES "]"
#define TRAILING_SPACE SPACE "+(?!" NOT_SPACE ")"

#define CONTRACTION "'s|'t|'re|'ve|'m|'ll|'d"
#define ANY_CASE_CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define OTHER "[^" SPACES "\\p{L}\\p{N}]"
#define GPT2 CONTRACTION "| ?\\p{L}+| ?\\p{N}+| ?" OTHER "+|" TRAILING_SPACE "|" SPACE "+"
// The cl100k family. `number` is its rule for digits.
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define NEWLINES SPACE "*[\\r\\n]+"
#define CL100K_TAIL " ?" OTHER "+[\\r\\n]*|" NEWLINES "|" TRAILING_SPACE "|" SPACE "+"
#define CL100K(number) ANY_CASE_CONTRACTION "|" WORD "|" number "|" CL100K_TAIL
// The o200k family: words split where lower case is followed by upper case.
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define CASED_WORDS(upper, lower, suffix)             \
  "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "+" suffix \
  "|"                                                 \
  "[^\\r\\n\\p{L}\\p{N}]?" upper "+" lower "*" suffix
#define O200K_TAIL " ?" OTHER "+[\\r\\n/]*|" NEWLINES "|" TRAILING_SPACE "|" SPACE "+"
#define O200K(suffix, number) \
  CASED_WORDS("[" UPPER "]", "[" LOWER "]", suffix) "|" number "|" O200K_TAIL
// The classes above without Han, as negated classes that list everything outside them.
#define UPPER_NOT_HAN "[^\\p{sc:Han}\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"
#define LOWER_NOT_HAN "[^\\p{sc:Han}\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"
// The last step of DeepSeek V3 and its derivatives.
#define DEEPSEEK3_WORDS                                    \
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|" \
  "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"

namespace tokamak {
namespace {

using Kind = PreTokenizerStep::Kind;
using Step = PreTokenizerRule::Step;

constexpr Step Split(const char* pattern) { return {pattern}; }
constexpr Step Digits(Kind kind) { return {nullptr, kind}; }

constexpr Step kDefault[] = {Split("[\\p{P}$+<=>^~|]+"), Split(GPT2), Split("\\p{N}+"),
                             Split("[0-9][0-9][0-9]")};
constexpr Step kGpt2[] = {Split(GPT2)};
constexpr Step kDigitsThenGpt2[] = {Split("\\p{N}"), Split(GPT2)};
constexpr Step kFalcon[] = {Split("[\\p{P}$+<=>^~|`]+"), Split(GPT2), Split("[0-9][0-9][0-9]")};
constexpr Step kLlama3[] = {Split(CL100K("\\p{N}{1,3}"))};
constexpr Step kQwen2[] = {Split(CL100K("\\p{N}"))};
constexpr Step kQwen35[] = {Split(ANY_CASE_CONTRACTION
                                  "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACES
                                  "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" NEWLINES "|" TRAILING_SPACE
                                  "|" SPACE "+")};
// Cuts long runs of spaces into powers of two. NEWLINES cannot match from the middle of a run of
// spaces: if a newline came after the run, NEWLINES would have matched from its start. The
// lookbehind spares the search for that newline after each cut, which keeps time linear.
constexpr Step kJais2[] = {Split(
    ANY_CASE_CONTRACTION
    "|" WORD "|\\p{N}{1,3}| ?" OTHER "+[\\r\\n]*|(?<![" INLINE_SPACES "])" NEWLINES "|" SPACE
    "{512}(?!" NOT_SPACE ")|" SPACE "{256}(?!" NOT_SPACE ")|" SPACE "{128}(?!" NOT_SPACE ")|" SPACE
    "{64}(?!" NOT_SPACE ")|" SPACE "{32}(?!" NOT_SPACE ")|" SPACE "{16}(?!" NOT_SPACE ")|" SPACE
    "{8}(?!" NOT_SPACE ")|" SPACE "{4}(?!" NOT_SPACE ")|" SPACE "{1,2}(?!" NOT_SPACE ")|" SPACE)};
// Letters of scripts with case, as listed by DeepSeek's first tokenizer.
#define DEEPSEEK_LETTERS                                                                  \
  "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"          \
  "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"  \
  "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"           \
  "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"                \
  "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"          \
  "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}"          \
  "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}" \
  "\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"  \
  "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}"          \
  "\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"           \
  "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}"            \
  "\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}" \
  "\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}"  \
  "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"           \
  "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"          \
  "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"        \
  "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"  \
  "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
#define DEEPSEEK_CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
constexpr Step kDeepSeekLlm[] = {
    Split("[\\r\\n]"), Split(SPACE "?[" DEEPSEEK_LETTERS "]+"),
    Split(SPACE
          "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"),
    // White space at the end of the piece. The lookbehind keeps the search linear in long runs.
    Split("(?<!" SPACE ")" SPACE "+\\z"), Split(DEEPSEEK_CJK), Split("\\p{N}+")};
constexpr Step kDeepSeekCoder[] = {Split("[\\r\\n]"), Split(SPACE "?\\p{L}+"),
                                   Split(SPACE "?\\p{P}+"), Split(DEEPSEEK_CJK), Split("\\p{N}")};
#define JAPANESE_OR_HAN "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
constexpr Step kDeepSeek3[] = {Split("\\p{N}{1,3}"), Split(JAPANESE_OR_HAN),
                               Split(DEEPSEEK3_WORDS "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" NEWLINES
                                                     "|" TRAILING_SPACE "|" SPACE "+")};
constexpr Step kSpark[] = {
    Split("\\p{N}{1,3}"), Split(JAPANESE_OR_HAN),
    Split(DEEPSEEK3_WORDS "| ?[\\p{P}\\p{S}]+|[\\r\\n]|" TRAILING_SPACE "|" SPACE "+"),
    Split("\\p{N}")};
constexpr Step kYoutu[] = {
    Split("[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}"
          "\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|["
          "\\x{3105}-\\x{312f}]+|" JAPANESE_OR_HAN),
    Split(O200K(ANY_CASE_CONTRACTION "?", "\\p{N}"))};
#define BLOOM_WORD \
  " ?[^(" SPACES "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
constexpr Step kBloom[] = {Split(BLOOM_WORD)};
constexpr Step kViking[] = {Split(BLOOM_WORD), Split("\\p{N}")};
constexpr Step kTekken[] = {Split(O200K("", "\\p{N}"))};
constexpr Step kGpt4o[] = {Split(O200K(ANY_CASE_CONTRACTION "?", "\\p{N}{1,3}"))};
constexpr Step kChameleon[] = {Split("<sentinel:[0-9]+>"),      Split("IMGIMG[A-I]{1,4}Z"),
                               Split("[\\t\\n]|    |  "),       Split("\\p{N}"),
                               Split("[\\p{P}!-/:-@\\[-`{-~]"), Split(GPT2)};
constexpr Step kTinyAya[] = {Digits(Kind::kWordEndDigitGroups),
                             Split(O200K(ANY_CASE_CONTRACTION "?", "\\p{N}{1,3}"))};
constexpr Step kKimiK2[] = {Split("\\p{sc:Han}+|" CASED_WORDS(
    UPPER_NOT_HAN, LOWER_NOT_HAN, ANY_CASE_CONTRACTION "?") "|\\p{N}{1,3}|" CL100K_TAIL)};
constexpr Step kSuperBpe[] = {Split("\\p{N}+"), Digits(Kind::kDigitGroups)};
constexpr Step kBailingMoe[] = {
    Split("'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?" OTHER
          "++[\\r\\n]*|" SPACE "*[\\r\\n]|" TRAILING_SPACE "|" SPACE "+")};
constexpr Step kSeedCoder[] = {Split(ANY_CASE_CONTRACTION "|" WORD "|\\p{N}| ?[^" SPACES
                                                          "\\p{L}\\p{N}\\r\\n]+|" NEWLINES
                                                          "|" TRAILING_SPACE "|" SPACE "+")};
constexpr Step kUfakzeka[] = {Split(WORD "|\\p{N}|" CL100K_TAIL)};
constexpr Step kAfmoe[] = {
    Digits(Kind::kNumberGroups),
    Split("[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{309f}\\x{30a0}-"
          "\\x{30ff}\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{e7f}\\x{e80}-\\x{eff}\\x{"
          "1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{"
          "d7af}\\x{1100}-\\x{11ff}]+"),
    Split(DEEPSEEK3_WORDS "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" NEWLINES "|" TRAILING_SPACE "|" SPACE
                          "+")};
constexpr Step kLines[] = {Split("[^\\n]+|\\n+")};
constexpr Step kLaguna[] = {Split("[^\\n]+|\\n+"), Split(CL100K("\\p{N}"))};
// The groups are possessive, which keeps time linear. They match the same as others would, because
// nothing follows them in their alternative.
constexpr Step kExaoneMoe[] = {
    Split(ANY_CASE_CONTRACTION
          "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}| ?" OTHER
          "+[\\r\\n/]?|" SPACE "*[\\r\\n]|" TRAILING_SPACE "|" SPACE "+")};
constexpr Step kMiniCpm5[] = {Split("\\p{N}{1,3}"), Split(CL100K("\\p{N}+"))};
constexpr Step kNonSpace[] = {Split(NOT_SPACE "+")};

constexpr PreTokenizerRule Rule(std::span<const Step> steps) { return {.steps = steps}; }
constexpr PreTokenizerRule Nfc(std::span<const Step> steps) {
  return {.steps = steps, .nfc = true};
}
constexpr PreTokenizerRule IgnoreMerges(std::span<const Step> steps, bool add_bos = false) {
  return {.steps = steps, .ignore_merges = true, .add_bos = add_bos};
}
constexpr PreTokenizerRule PlainText(bool whole_newlines) {
  return {.steps = kLines,
          .byte_level = false,
          .add_bos = whole_newlines,
          .escape_spaces = true,
          .whole_newlines = whole_newlines};
}

struct Entry {
  std::string_view name;
  PreTokenizerRule rule;
};

constexpr Entry kTable[] = {
    {"default", Rule(kDefault)},
    // GPT-2's pattern.
    {"gpt-2", Rule(kGpt2)},
    {"phi-2", Rule(kGpt2)},
    {"mpt", Nfc(kGpt2)},
    {"olmo", Nfc(kGpt2)},
    {"jais", Rule(kGpt2)},
    {"jina-es", Rule(kGpt2)},
    {"jina-de", Rule(kGpt2)},
    {"jina-v1-en", Rule(kGpt2)},
    {"jina-v2-es", Rule(kGpt2)},
    {"jina-v2-de", Rule(kGpt2)},
    {"jina-v2-code", Rule(kGpt2)},
    {"roberta-bpe", Rule(kGpt2)},
    {"modern-bert", Rule(kGpt2)},
    {"gigachat", Rule(kGpt2)},
    {"a.x-4.0", Rule(kGpt2)},
    {"mellum", Rule(kGpt2)},
    {"exaone4", Rule(kGpt2)},
    {"trillion", Rule(kGpt2)},
    {"granite-docling", Rule(kGpt2)},
    // Single digits, then GPT-2's pattern.
    {"smollm", Rule(kDigitsThenGpt2)},
    {"starcoder", Rule(kDigitsThenGpt2)},
    {"refact", Rule(kDigitsThenGpt2)},
    {"command-r", Nfc(kDigitsThenGpt2)},
    {"codeshell", Rule(kDigitsThenGpt2)},
    {"exaone", Rule(kDigitsThenGpt2)},
    {"minerva-7b", Rule(kDigitsThenGpt2)},
    {"mellum2", Rule(kDigitsThenGpt2)},
    {"falcon", Rule(kFalcon)},
    // cl100k with digits by three.
    {"llama3", IgnoreMerges(kLlama3, true)},
    {"llama-v3", IgnoreMerges(kLlama3, true)},
    {"llama-bpe", IgnoreMerges(kLlama3, true)},
    {"falcon3", IgnoreMerges(kLlama3, true)},
    {"falcon-h1", IgnoreMerges(kLlama3, true)},
    {"pixtral", IgnoreMerges(kLlama3, true)},
    {"midm-2.0", IgnoreMerges(kLlama3, true)},
    {"lfm2", IgnoreMerges(kLlama3, true)},
    {"jina-v5-nano", IgnoreMerges(kLlama3, true)},
    {"dbrx", Rule(kLlama3)},
    {"smaug-bpe", Rule(kLlama3)},
    {"chatglm-bpe", Rule(kLlama3)},
    {"glm4", IgnoreMerges(kLlama3)},
    {"glm5", IgnoreMerges(kLlama3)},
    {"jais-2", Rule(kJais2)},
    {"minicpm5", IgnoreMerges(kMiniCpm5)},
    // cl100k with single digits.
    {"qwen2", Nfc(kQwen2)},
    {"deepseek-r1-qwen", Rule(kQwen2)},
    {"kormo", Rule(kQwen2)},
    {"f2llmv2", Rule(kQwen2)},
    {"megrez", Rule(kQwen2)},
    {"stablelm2", Nfc(kQwen2)},
    {"hunyuan", Rule(kQwen2)},
    {"solar-open", Rule(kQwen2)},
    {"grok-2", Rule(kQwen2)},
    {"qwen35", Rule(kQwen35)},
    {"seed-coder", Rule(kSeedCoder)},
    {"bailingmoe", Rule(kBailingMoe)},
    {"bailingmoe2", Rule(kBailingMoe)},
    {"llada-moe", Rule(kBailingMoe)},
    {"ufakzeka", Rule(kUfakzeka)},
    {"laguna", Rule(kLaguna)},
    {"exaone-moe", Rule(kExaoneMoe)},
    // DeepSeek.
    {"deepseek-llm", Rule(kDeepSeekLlm)},
    {"deepseek-coder", Rule(kDeepSeekCoder)},
    {"deepseek-v3", Rule(kDeepSeek3)},
    {"hunyuan-dense", Rule(kDeepSeek3)},
    {"joyai-llm", Rule(kDeepSeek3)},
    {"hy_v4", Rule(kDeepSeek3)},
    {"spark2_5", Rule(kSpark)},
    {"afmoe", Rule(kAfmoe)},
    // o200k.
    {"tekken", IgnoreMerges(kTekken, true)},
    {"gpt-4o", Rule(kGpt4o)},
    {"llama4", Rule(kGpt4o)},
    {"kanana2", Rule(kGpt4o)},
    {"talkie", Rule(kGpt4o)},
    {"minimax-m2", Rule(kGpt4o)},
    {"granite-embed-multi-97m", IgnoreMerges(kGpt4o)},
    {"tiny_aya", Rule(kTinyAya)},
    {"cohere2moe", Rule(kTinyAya)},
    {"youtu", IgnoreMerges(kYoutu)},
    {"kimi-k2", Rule(kKimiK2)},
    // Others.
    {"bloom", Rule(kBloom)},
    {"poro-chat", Rule(kBloom)},
    {"gpt3-finnish", Rule(kBloom)},
    {"viking", Rule(kViking)},
    {"superbpe", Rule(kSuperBpe)},
    {"chameleon", {.steps = kChameleon, .add_bos = true}},
    {"gemma4", PlainText(true)},
    {"granite-embed-multi-311m", PlainText(true)},
    {"sarvam-moe", PlainText(false)},
    {"whitespace", {.steps = kNonSpace, .byte_level = false, .drop_between = true}},
};

}  // namespace

std::vector<PreTokenizerStep> PreTokenizerRule::PreTokenizers() const {
  std::vector<PreTokenizerStep> result;
  for (const Step& step : steps) {
    PreTokenizerStep& next = result.emplace_back();
    next.kind = step.kind;
    if (step.pattern != nullptr) next.pattern = {step.pattern, TextPattern::Syntax::kPcre};
    if (drop_between) {
      next.invert = true;
      next.behavior = SplitBehavior::kRemoved;
    }
  }
  if (byte_level) {
    PreTokenizerStep& bytes = result.emplace_back();
    bytes.kind = Kind::kByteLevel;
    bytes.use_pattern = false;
  }
  return result;
}

const PreTokenizerRule* FindPreTokenizer(std::string_view name) {
  for (const Entry& entry : kTable) {
    if (entry.name == name) return &entry.rule;
  }
  return nullptr;
}

std::vector<std::string_view> PreTokenizerNames() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kTable) names.push_back(entry.name);
  return names;
}

}  // namespace tokamak
