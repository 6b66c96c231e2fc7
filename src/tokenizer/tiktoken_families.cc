#include "tokenizer/tiktoken_families.h"

#include <fmt/core.h>

#include "base/hash.h"

namespace tokamak {
namespace {

// Words without regard to case, with contractions; N is the rule for numbers.
#define TOKAMAK_WORDS(N)                                          \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" N \
  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
// A word has an upper-case part and a lower-case part. A is intersected with each class; C may
// follow a word.
#define TOKAMAK_CASED(A, C)                                                                        \
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}" A "]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}" A \
  "]+" C "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}" A                            \
  "]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}" A "]*" C
#define TOKAMAK_CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

void AddNumbered(std::vector<std::string>& names, const char* stem, int from, int to) {
  for (int i = from; i < to; ++i) names.push_back(fmt::format("<|{}_{}|>", stem, i));
}

std::vector<std::string> Llama3Special(int32_t) {
  std::vector<std::string> names = {"<|begin_of_text|>",
                                    "<|end_of_text|>",
                                    "<|reserved_special_token_0|>",
                                    "<|reserved_special_token_1|>",
                                    "<|finetune_right_pad_id|>",
                                    "<|step_id|>",
                                    "<|start_header_id|>",
                                    "<|end_header_id|>",
                                    "<|eom_id|>",
                                    "<|eot_id|>",
                                    "<|python_tag|>",
                                    "<|image|>"};
  AddNumbered(names, "reserved_special_token", 2, 246);
  return names;
}

std::vector<std::string> Llama4Special(int32_t) {
  std::vector<std::string> names = {
      "<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
      "<|header_start|>",  "<|header_end|>",  "<|eom|>",        "<|eot|>",        "<|step|>"};
  AddNumbered(names, "text_post_train_reserved_special_token", 0, 6);
  names.insert(names.end(), {"<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"});
  AddNumbered(names, "text_post_train_reserved_special_token", 8, 69);
  names.insert(names.end(), {"<|image_start|>", "<|image_end|>"});
  AddNumbered(names, "vision_reserved_special_token", 0, 2);
  names.insert(names.end(), {"<|tile_x_separator|>", "<|tile_y_separator|>"});
  AddNumbered(names, "vision_reserved_special_token", 2, 6);
  names.insert(names.end(), {"<|image|>", "<|vision_reserved_special_token_6|>", "<|patch|>"});
  AddNumbered(names, "vision_reserved_special_token", 7, 1048);
  AddNumbered(names, "reasoning_reserved_special_token", 0, 8);
  names.insert(names.end(), {"<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"});
  AddNumbered(names, "reserved_special_token", 0, 2048 - static_cast<int>(names.size()));
  return names;
}

std::vector<std::string> QwenSpecial(int32_t) {
  std::vector<std::string> names = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  AddNumbered(names, "extra", 0, 205);
  return names;
}

// Most of their names are in tokenizer_config.json.
std::vector<std::string> KimiSpecial(int32_t count) {
  std::vector<std::string> names = {"[BOS]", "[EOS]"};
  AddNumbered(names, "reserved_token", count + 2, count + 256);
  return names;
}

constexpr TiktokenFamily kFamilies[] = {
    {"Llama 3", 128'000, 0xE0C2'2A52'2BEA'2E79, "", TOKAMAK_WORDS("\\p{N}{1,3}"), false,
     Llama3Special, "<|begin_of_text|>", "<|end_of_text|>", true},
    {"Llama 4", 200'000, 0x2E32'AD2D'5FB1'B5C7, "",
     TOKAMAK_CASED(
         "", TOKAMAK_CONTRACTION) "|\\p{N}{1,3}| "
                                  "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     false, Llama4Special, "<|begin_of_text|>", "<|end_of_text|>", true},
    {"Qwen", 151'643, 0xD4F4'58DF'323A'1C5B, "", TOKAMAK_WORDS("\\p{N}"), true, QwenSpecial, "",
     "<|endoftext|>", false},
    {"Kimi", 163'584, 0, "tokenization_kimi.TikTokenTokenizer",
     "[\\p{Han}]+|" TOKAMAK_CASED(
         "&&[^\\p{Han}]",
         TOKAMAK_CONTRACTION) "|\\p{N}{1,3}| "
                              "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     false, KimiSpecial, "[BOS]", "[EOS]", false},
};
#undef TOKAMAK_WORDS
#undef TOKAMAK_CASED
#undef TOKAMAK_CONTRACTION

}  // namespace

uint64_t DigestOfRanks(const std::vector<std::string>& tokens) {
  std::string all;
  for (const std::string& token : tokens) {
    const auto size = static_cast<uint32_t>(token.size());
    for (int shift = 0; shift < 32; shift += 8) all += static_cast<char>(size >> shift);
    all += token;
  }
  return Hash64(all.data(), all.size());
}

const TiktokenFamily* FindTiktokenFamily(const std::vector<std::string>& tokens,
                                         std::string_view tokenizer_class) {
  uint64_t digest = 0;
  for (const TiktokenFamily& family : kFamilies) {
    if (family.ranks != tokens.size()) continue;
    if (!family.tokenizer_class.empty() && family.tokenizer_class == tokenizer_class)
      return &family;
    if (family.digest == 0) continue;
    if (digest == 0) digest = DigestOfRanks(tokens);
    if (digest == family.digest) return &family;
  }
  return nullptr;
}

std::string TiktokenFamilyNames() {
  std::string names;
  for (const TiktokenFamily& family : kFamilies) {
    if (!names.empty()) names += ", ";
    names += family.name;
  }
  return names;
}

}  // namespace tokamak
