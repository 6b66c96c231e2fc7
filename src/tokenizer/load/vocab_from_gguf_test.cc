#include "tokenizer/load/vocab_from_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/testing/refs.h"
#include "tokenizer/load/open_tokenizer.h"
#include "tokenizer/testing/test_strings.h"
#include "tokenizer/testing/tiny_vocabs.h"
#include "tokenizer/tokenizer.h"
#include "weights/testing/gguf_writer.h"

namespace tokamak {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

// A vocabulary from the reference package, if it was fetched.
std::optional<std::string> VocabularyPath(const std::string& name) {
  return testing::FindRef("llama.cpp/models/ggml-vocab-" + name + ".gguf");
}

std::string Read(const std::string& path) {
  auto text = ReadWholeFile(path, 64 << 20);
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  return *text;
}

// Compares each case of NAME.gguf.inp with the ids in the same line of NAME.gguf.out.
void CheckReferenceFiles(const std::string& path) {
  const auto tokenizer = OpenTokenizer(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::string inputs = Read(path + ".inp");
  std::istringstream outputs(Read(path + ".out"));
  std::string line;
  int cases = 0;
  for (size_t begin = 0; begin <= inputs.size() && std::getline(outputs, line); ++cases) {
    size_t end = inputs.find(separator, begin);
    if (end == std::string::npos) end = inputs.size();
    const std::string text = inputs.substr(begin, end - begin);
    std::istringstream numbers(line);
    const Ids expected{std::istream_iterator<int32_t>(numbers), {}};
    EXPECT_EQ(*(*tokenizer)->Encode(text, {.add_special = false}), expected)
        << path << ": " << ::testing::PrintToString(text);
    begin = end + separator.size();
  }
  EXPECT_GE(cases, 40) << path;
}

TEST(VocabFromGguf, IdsEqualThoseThatComeWithTheReferenceVocabularies) {
  SKIP_WITHOUT(VocabularyPath("gpt-2"));
  for (const char* name :
       {"bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2",
        "llama-bpe", "llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder"}) {
    const auto path = VocabularyPath(name);
    ASSERT_TRUE(path) << name;
    CheckReferenceFiles(*path);
  }
}

// make_tokenizer_goldens.py makes tests/golden/tokenizer_ids.txt.
TEST(VocabFromGguf, IdsEqualOtherTokenizersOnGeneratedStrings) {
  std::ifstream goldens(std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/tokenizer_ids.txt");
  ASSERT_TRUE(goldens);
  std::string name, reference;
  int parse = 0, sections = 0;
  uint64_t count = 0;
  while (goldens >> name >> reference >> parse >> count) {
    const auto path = name == "smollm2" ? testing::FindModel() : VocabularyPath(name);
    std::shared_ptr<const Tokenizer> tokenizer;
    if (path) {
      auto loaded = OpenTokenizer(*path);
      ASSERT_TRUE(loaded.ok()) << name << ": " << loaded.status().ToString();
      tokenizer = *loaded;
      ++sections;
    }
    for (uint64_t i = 0; i < count; ++i) {
      std::string hash;
      goldens >> hash;
      if (!tokenizer) continue;
      const Ids ids = *tokenizer->Encode(testing::TestString(i),
                                         {.add_special = false, .parse_special = parse == 1});
      ASSERT_EQ(testing::Fnv32(ids), std::stoul(hash, nullptr, 16))
          << name << ", string " << i << ", parse_special " << parse << ", unlike " << reference;
    }
  }
  if (sections == 0) GTEST_SKIP() << "neither the model nor the vocabularies have been fetched";
}

TEST(VocabFromGguf, DefaultModelHasItsSpecialTokens) {
  const auto path = testing::FindModel();
  SKIP_WITHOUT(path);
  const auto tokenizer = *OpenTokenizer(*path);
  EXPECT_EQ(tokenizer->vocab_size(), 49152);
  EXPECT_EQ(tokenizer->special().eot, tokenizer->FindToken("<|im_end|>"));
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(tokenizer->FindToken("<|im_end|>")));
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(tokenizer->FindToken("<|endoftext|>")));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(tokenizer->FindToken("<|im_start|>")));
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_EQ(*tokenizer->Decode(*tokenizer->Encode("Hello 🦙 wörld\n")), "Hello 🦙 wörld\n");
}

// A GGUF file's metadata with the tiny byte pair vocabulary, which tests may change.
GgufWriter Writer(const GgufVocab& spec, const std::string& model) {
  GgufWriter writer;
  writer.Set("general.architecture", "llama");
  writer.Set("tokenizer.ggml.model", model);
  writer.SetArray("tokenizer.ggml.tokens", spec.tokens);
  std::vector<int32_t> types;
  for (const TokenType type : spec.types) types.push_back(static_cast<int32_t>(type));
  writer.SetArray("tokenizer.ggml.token_type", types);
  return writer;
}

Result<GgufVocab> Parse(const GgufWriter& writer) {
  const std::string path = ::testing::TempDir() + "/vocab.gguf";
  const Status written = writer.WriteFile(path);
  EXPECT_TRUE(written.ok()) << written.ToString();
  ASSIGN_OR_RETURN(const auto file, GgufFile::Open(path));
  return VocabFromGguf(*file);
}

void ExpectError(const GgufWriter& writer, StatusCode code, const std::string& what) {
  const auto spec = Parse(writer);
  ASSERT_FALSE(spec.ok()) << what;
  EXPECT_EQ(spec.status().code(), code) << spec.status().ToString();
  EXPECT_THAT(std::string(spec.status().message()), HasSubstr(what));
  EXPECT_THAT(std::string(spec.status().message()), HasSubstr("vocab.gguf"));
}

TEST(VocabFromGguf, ReadsEveryField) {
  const GgufVocab tiny = testing::TinyUnigram();
  GgufWriter writer = Writer(tiny, "t5");
  writer.SetArray("tokenizer.ggml.scores", tiny.scores);
  std::vector<int32_t> bytes;
  for (const char c : tiny.precompiled_charsmap) bytes.push_back(static_cast<uint8_t>(c));
  writer.SetArray("tokenizer.ggml.precompiled_charsmap", bytes);
  writer.Set("tokenizer.ggml.eos_token_id", tiny.special.eos);
  writer.Set("tokenizer.ggml.padding_token_id", int64_t{4000000000});  // not in the vocabulary
  writer.Set("tokenizer.ggml.add_space_prefix", true);
  writer.Set("tokenizer.ggml.remove_extra_whitespaces", true);
  writer.Set("tokenizer.ggml.add_bos_token", false);
  const auto spec = Parse(writer);
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->kind, TokenizerKind::kUnigram);
  EXPECT_EQ(spec->tokens, tiny.tokens);
  EXPECT_EQ(spec->scores, tiny.scores);
  EXPECT_EQ(spec->types, tiny.types);
  EXPECT_EQ(spec->precompiled_charsmap, tiny.precompiled_charsmap);
  EXPECT_EQ(spec->special.eos, tiny.special.eos);
  EXPECT_EQ(spec->special.unk, tiny.special.unk);  // found by its type
  EXPECT_EQ(spec->special.pad, -1);
  EXPECT_TRUE(spec->add_eos);
  EXPECT_FALSE(spec->add_bos);
  EXPECT_TRUE(spec->add_space_prefix);
  EXPECT_TRUE(spec->remove_extra_whitespaces);
}

TEST(VocabFromGguf, ModelsThatStripWhiteSpaceAreKnownByName) {
  GgufVocab tiny = testing::TinySentencePiece();
  GgufWriter writer = Writer(tiny, "llama");
  writer.SetArray("tokenizer.ggml.scores", tiny.scores);
  writer.Set("general.name", "Phi-3 mini");
  const auto spec = Parse(writer);
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  const auto tool = static_cast<int32_t>(tiny.tokens.size()) - 1;
  EXPECT_THAT(spec->rstrip_tokens, ElementsAre(tiny.special.eos, tool));
}

TEST(VocabFromGguf, ErrorsNameTheFileAndTheKey) {
  const GgufVocab tiny = testing::TinyBytePairs();
  ExpectError(GgufWriter(), StatusCode::kNotFound, "tokenizer.ggml.model");
  ExpectError(Writer(tiny, "rwkv"), StatusCode::kUnimplemented, "\"rwkv\"");
  {
    GgufWriter writer = Writer(tiny, "gpt2");
    writer.Set("tokenizer.ggml.pre", "no-such");
    ExpectError(writer, StatusCode::kUnimplemented, "unknown pre-tokenizer \"no-such\"");
  }
  {
    GgufWriter writer = Writer(tiny, "gpt2");
    writer.Set("tokenizer.ggml.pre", "smollm");
    ExpectError(writer, StatusCode::kNotFound, "tokenizer.ggml.merges");
    writer.SetArray("tokenizer.ggml.merges", tiny.merges);
    EXPECT_TRUE(Parse(writer).ok());
    writer.Set("tokenizer.ggml.eos_token_id", 100000);
    ExpectError(writer, StatusCode::kDataLoss, "tokenizer.ggml.eos_token_id");
  }
  {
    GgufWriter writer = Writer(tiny, "llama");
    writer.SetArray("tokenizer.ggml.scores", std::vector<float>{1, 2});
    ExpectError(writer, StatusCode::kDataLoss, "2 elements for");
  }
  {
    GgufVocab bad = tiny;
    bad.types[3] = static_cast<TokenType>(9);
    ExpectError(Writer(bad, "llama"), StatusCode::kDataLoss, "token_type\"[3]");
  }
}

}  // namespace
}  // namespace tokamak
