#include "invariance/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "invariance/golden_model.h"
#include "invariance/tiny_model.h"

namespace tokamak::invariance {
namespace {

// For tiny models: prompt and answer lengths.
constexpr int32_t kLongest = 620;
constexpr int32_t kMostNew = 40;
// The same for those that take images, each of which has up to 49 tokens, beside 4 images.
constexpr int32_t kLongestWithImages = 220;
constexpr size_t kMostImages = 4;
constexpr int32_t kGoldenContext = 512;
static_assert(kLongest + kMostNew <= kTinyContext);
static_assert(kLongestWithImages + kMostImages * 49 + kMostNew <= kGoldenContext);

constexpr const char* kTexts[] = {
    "The harbour town had two bakeries, and everyone who lived there belonged to one of them. It "
    "was not a matter of bread. The older shop stood by the fish market, where the wind came "
    "straight in from the sea, and its windows were white with salt by noon. ",
    "Question: A train leaves the station at nine in the morning and travels at eighty kilometres "
    "an hour. A second train leaves the same station one hour later at one hundred kilometres an "
    "hour. When does the second train catch up with the first? Answer: Let us think step by step. ",
    ("def merge(left, right):\n    \"\"\"Merges two sorted lists into one.\"\"\"\n    result = []\n"
     "    i = j = 0\n    while i < len(left) and j < len(right):\n        if left[i] <= "
     "right[j]:\n"),
};

constexpr char kAnimal[] = R"({"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 6},
    "kind": {"enum": ["cat", "walking cat", null]},
    "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "kind", "age"], "additionalProperties": false})";

// Keeps the first `length` tokens.
void Cut(size_t length, int32_t placeholder, Content* content) {
  content->token_ids.resize(std::min(length, content->token_ids.size()));
  const auto images = std::count(content->token_ids.begin(), content->token_ids.end(), placeholder);
  content->images.resize(static_cast<size_t>(images));
}

}  // namespace

RequestMaker::RequestMaker(uint64_t seed, Material material)
    : random_(seed), material_(std::move(material)) {}

int64_t RequestMaker::Between(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
}

float RequestMaker::Real(float low, float high) {
  return low + (high - low) * static_cast<float>(random_() >> 40) * 0x1p-24f;
}

int32_t RequestMaker::Token() {
  const auto token = static_cast<int32_t>(Between(0, material_.vocab_size - 1));
  return token == material_.placeholder ? 0 : token;
}

const ImageData& RequestMaker::Picture() {
  return material_.pictures[static_cast<size_t>(Between(0, std::ssize(material_.pictures) - 1))];
}

Content RequestMaker::Prompt(const std::vector<Case>& earlier) {
  int64_t length = Between(4, std::min(64, material_.max_prompt));
  if (Chance(15)) length = Between(1, 4);
  if (Chance(material_.long_percent)) length = Between(length, material_.max_prompt);
  Content prompt;
  std::vector<int32_t>& tokens = prompt.token_ids;
  if (!earlier.empty() && Chance(15)) {
    const auto& turn = earlier[static_cast<size_t>(Between(0, std::ssize(earlier) - 1))];
    tokens = turn.request.token_ids;
    prompt.images = turn.request.images;
    for (const int32_t token : turn.alone.front().token_ids) {
      tokens.push_back(token == material_.placeholder ? 0 : token);
    }
    length = std::min<int64_t>(std::ssize(tokens) + Between(0, 20), material_.max_prompt);
  } else if (Chance(75)) {
    const auto last = std::ssize(material_.documents) - 1;
    prompt = material_.documents[static_cast<size_t>(Between(0, last))];
    const int64_t shared = Chance(30) ? length : Between(0, length);
    Cut(static_cast<size_t>(shared), material_.placeholder, &prompt);
  }
  // The same tokens with another picture are another prompt.
  if (!prompt.images.empty() && Chance(30)) {
    prompt.images[static_cast<size_t>(Between(0, std::ssize(prompt.images) - 1))] = Picture();
  }
  while (std::ssize(tokens) < length) {
    if (material_.placeholder >= 0 && prompt.images.size() < kMostImages && Chance(4)) {
      tokens.push_back(material_.placeholder);
      prompt.images.push_back(Picture());
    } else {
      tokens.push_back(Token());
    }
  }
  Cut(static_cast<size_t>(length), material_.placeholder, &prompt);
  return prompt;
}

void RequestMaker::ChooseTokens(SamplingParams* params) {
  params->temperature = Chance(35) ? 0.0f : Real(0.3f, 1.6f);
  if (Chance(20)) params->dynatemp_range = Real(0.1f, 1.0f);
  if (Chance(10)) params->dynatemp_exponent = Real(0.5f, 2.0f);
  if (Chance(20)) params->top_n_sigma = Real(0.5f, 3.0f);
  if (Chance(30)) params->top_k = static_cast<int32_t>(Between(1, 40));
  if (Chance(30)) params->top_p = Real(0.5f, 1.0f);
  if (Chance(20)) params->min_p = Real(0.01f, 0.2f);
  if (Chance(15)) params->typical_p = Real(0.5f, 1.0f);
  if (Chance(20)) params->xtc_probability = Real(0.1f, 1.0f);
  params->xtc_threshold = Real(0.01f, 0.3f);
  if (Chance(25)) params->repetition_penalty = Real(0.8f, 1.4f);
  if (material_.repeat_percent > 0 && Chance(material_.repeat_percent)) {
    params->repetition_penalty = Real(0.02f, 0.5f);
  }
  if (Chance(20)) params->presence_penalty = Real(-1.0f, 1.0f);
  if (Chance(20)) params->frequency_penalty = Real(-1.0f, 1.0f);
  if (Chance(30)) params->repeat_last_n = static_cast<int32_t>(Between(0, 40));
  if (Chance(20)) {
    params->dry_multiplier = Real(0.3f, 3.0f);
    params->dry_base = Real(1.0f, 2.0f);
    params->dry_allowed_length = static_cast<int32_t>(Between(0, 3));
    params->dry_penalty_last_n = static_cast<int32_t>(Between(-1, 100));
    if (Chance(50)) params->dry_sequence_breakers = {"e", " cat"};
  }
  if (Chance(8)) {
    for (int64_t i = Between(1, 60); i > 0; --i) params->allowed_token_ids.push_back(Token());
  }
  if (Chance(15)) params->bad_words = {"the", "e", " cat walks"};
  if (Chance(20)) {
    for (int64_t i = Between(1, 5); i > 0; --i) {
      params->logit_bias.emplace_back(Token(), Real(-10.0f, 5.0f));
    }
  }
  params->seed = random_();
}

void RequestMaker::ChooseEnds(SamplingParams* params) {
  params->n = Chance(80) ? 1 : static_cast<int32_t>(Between(2, 4));
  params->max_tokens = static_cast<int32_t>(Between(2, material_.max_new));
  if (Chance(10)) params->max_tokens = static_cast<int32_t>(Between(0, 1));
  if (Chance(20)) params->min_tokens = static_cast<int32_t>(Between(1, 20));
  params->min_tokens = std::min(params->min_tokens, *params->max_tokens);
  if (Chance(12)) params->stop = {Chance(50) ? "e" : " t", "the cat"};
  params->include_stop_str_in_output = Chance(30);
  params->skip_special_tokens = Chance(80);
  if (Chance(30)) {
    for (int64_t i = Between(1, 20); i > 0; --i) params->stop_token_ids.push_back(Token());
  }
  params->ignore_eos = Chance(50);
  if (Chance(70)) params->logprobs = static_cast<int32_t>(Between(0, Chance(10) ? 60 : 4));
  if (Chance(20)) params->prompt_logprobs = static_cast<int32_t>(Between(0, 4));
}

StructuredOutput RequestMaker::Form() {
  using Kind = StructuredOutput::Kind;
  StructuredOutput form;
  switch (Between(0, 5)) {
    case 0:
      form = {.kind = Kind::kJsonSchema, .text = kAnimal};
      break;
    case 1:
      form = {.kind = Kind::kJsonSchema,
              .text = fmt::format(R"({{"type": "array", "minItems": 2, "items": {}}})", kAnimal)};
      form.whitespace_pattern = "";
      break;
    case 2:
      form = {.kind = Kind::kRegex, .text = "[a-z]{1,4}(, the (walking )?cat [0-9]{1,3})+"};
      break;
    case 3:
      form = {.kind = Kind::kChoice, .choices = {"the walking cat", "the walking aa", "東東👍"}};
      break;
    case 4:
      form = {.kind = Kind::kJsonObject};
      break;
    default:
      form.calls = {{.begin = "<tool_call>{\"name\": \"walk\", \"arguments\": ",
                     .schema = kAnimal,
                     .end = "}</tool_call>"},
                    {.begin = "<tool_call>{\"name\": \"wait\", \"arguments\": ",
                     .schema = kAnimal,
                     .end = "}</tool_call>"}};
      form.call_separator = "\n";
      form.must_call = Chance(70);
  }
  if (Chance(15)) form.reasoning = {.open = "<think>", .close = "</think>", .begun = Chance(50)};
  return form;
}

void RequestMaker::BoundThinking(SamplingParams* params) {
  StructuredOutput::Reasoning marks = {
      .open = "<think>", .close = Chance(50) ? "</think>" : "the cat", .begun = true};
  if (params->structured_output) params->structured_output->reasoning = marks;
  params->thinking_token_budget = static_cast<int32_t>(Between(0, 12));
  params->thinking = std::move(marks);
  // If these forbade the closing mark, the answer would end with an error.
  params->stop_token_ids.clear();
  params->allowed_token_ids.clear();
  params->bad_words.clear();
}

Request RequestMaker::Next(const std::vector<Case>& earlier) {
  Request request;
  Content prompt = Prompt(earlier);
  request.token_ids = std::move(prompt.token_ids);
  request.images = std::move(prompt.images);
  ChooseTokens(&request.sampling);
  ChooseEnds(&request.sampling);
  if (Chance(25)) {
    request.sampling.structured_output = Form();
    // Where only one of these could follow, or only others, the answer would end with an error.
    request.sampling.stop_token_ids.clear();
    request.sampling.allowed_token_ids.clear();
    request.sampling.bad_words.clear();
  }
  if (Chance(15)) BoundThinking(&request.sampling);
  request.priority = Chance(50) ? 0 : static_cast<int32_t>(Between(-2, 2));
  if (Chance(10)) request.cache_salt = "other";
  return request;
}

Result<Material> TinyMaterial(uint64_t seed, const ModelInfo& model) {
  std::mt19937_64 random(seed);
  Material material;
  material.vocab_size = model.vocab_size;
  material.max_new = kMostNew;
  if (model.images) {
    material.placeholder = model.images->placeholder_id;
    ASSIGN_OR_RETURN(const std::vector<std::string> pictures, Pictures());
    for (const std::string& picture : pictures) material.pictures.push_back({.bytes = picture});
  }
  // Most rounds are short, because a pool that holds a long prompt has enough blocks for the other
  // requests. The longest prompts see three splits of keys, whose order of addition could differ.
  struct Length {
    int32_t most, percent;
  };
  constexpr Length kLengths[] = {{90, 5}, {90, 5}, {90, 5}, {90, 5}, {330, 15}, {kLongest, 10}};
  const Length length = kLengths[random() % std::size(kLengths)];
  material.max_prompt =
      std::min(length.most, model.images ? kLongestWithImages : model.max_context - kMostNew);
  material.long_percent = length.percent;
  for (int i = 0; i < 4; ++i) {
    Content document;
    for (int t = 0; t < material.max_prompt; ++t) {
      auto token = static_cast<int32_t>(random() % static_cast<uint64_t>(model.vocab_size));
      if (token == material.placeholder) token = 0;
      // Every document begins with a few words and an image, and most have more images.
      if (model.images && document.images.size() < kMostImages && t % 17 == 3 + i) {
        token = material.placeholder;
        document.images.push_back(material.pictures[random() % material.pictures.size()]);
      }
      document.token_ids.push_back(token);
    }
    material.documents.push_back(std::move(document));
  }
  return material;
}

Result<Material> TextMaterial(const Engine& engine) {
  Material material;
  material.vocab_size = engine.model().vocab_size;
  material.max_prompt = 80;
  material.max_new = 24;
  material.long_percent = 5;
  for (const char* text : kTexts) {
    ASSIGN_OR_RETURN(auto ids, engine.Tokenize(text, /*add_special=*/true,
                                               /*parse_special=*/false));
    material.documents.push_back({.token_ids = std::move(ids), .images = {}});
  }
  return material;
}

std::string Describe(const Request& request) {
  const SamplingParams& p = request.sampling;
  return fmt::format(
      "{} prompt tokens with {} images, n {}, max_tokens {}, min_tokens {}, temperature {} (range "
      "{}, exponent "
      "{}), top_n_sigma {}, top_k {}, top_p {}, min_p {}, typical_p {}, xtc {} {}, penalties {} {} "
      "{}, DRY {} {} {} {}, {} biases, {} stops, {} stop tokens, ignore_eos "
      "{}, logprobs {}, prompt_logprobs {}, structured {}, thinking budget {}, priority {}, salt "
      "\"{}\", seed {}",
      request.token_ids.size(), request.images.size(), p.n, p.max_tokens.value_or(-1), p.min_tokens,
      p.temperature, p.dynatemp_range, p.dynatemp_exponent, p.top_n_sigma, p.top_k, p.top_p,
      p.min_p, p.typical_p, p.xtc_probability, p.xtc_threshold, p.repetition_penalty,
      p.presence_penalty, p.frequency_penalty, p.dry_multiplier, p.dry_base, p.dry_allowed_length,
      p.dry_penalty_last_n, p.logit_bias.size(), p.stop.size(), p.stop_token_ids.size(),
      p.ignore_eos, p.logprobs.value_or(-1), p.prompt_logprobs.value_or(-1),
      p.structured_output ? p.structured_output->text : "no", p.thinking_token_budget.value_or(-1),
      request.priority, request.cache_salt, p.seed.value_or(0));
}

}  // namespace tokamak::invariance
