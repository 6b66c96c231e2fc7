// Vendors' vocabularies from their own packages, compared with what their own tokenizers make of
// the same 100,000 strings (tests/golden/make_vendor_goldens.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/testing/refs.h"
#include "base/testing/sanitizers.h"
#include "tokenizer/load/open_tokenizer.h"
#include "tokenizer/testing/test_strings.h"

namespace tokamak {
namespace {

const std::string kGoldens = std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/";
constexpr size_t kBlock = 500;  // strings per hash
constexpr size_t kBlocks = testing::kSanitized ? 4 : 200;

constexpr const char* kVocabularies[] = {
    "vocabularies/qwen.tiktoken",
    "vocabularies/llama3/tokenizer.model",
    "vocabularies/llama4/tokenizer.model",
    "vocabularies/mistral/tokenizer.model.v1",
    "vocabularies/mistral/mistral_instruct_tokenizer_240216.model.v2",
    "vocabularies/mistral/mistral_instruct_tokenizer_240323.model.v3",
    "vocabularies/mistral/mistral_instruct_tokenizer_241114.model.v7",
    "vocabularies/mistral/tekken_240718.json",
    "vocabularies/mistral/tekken_240911.json",
    "vocabularies/deepseek",
    "all-MiniLM-L6-v2",
};
// Two names of the same file content.
constexpr const char* kCopy = "vocabularies/mistral/mistral_instruct_tokenizer_241114.model.v7m1";
constexpr const char* kCopied = "vocabularies/mistral/mistral_instruct_tokenizer_241114.model.v7";

// A section of vendor_ids.txt: whether the vendor's decoder shows special tokens, and the hashes.
struct Golden {
  bool shows_special = false;
  std::vector<uint32_t> hashes;
};

Golden ReadGolden(const std::string& name) {
  std::ifstream file(kGoldens + "vendor_ids.txt");
  for (std::string word; file >> word && word != name;) {
  }
  Golden golden;
  file >> golden.shows_special >> std::hex;
  for (uint32_t hash = 0; golden.hashes.size() < kBlocks && file >> hash;) {
    golden.hashes.push_back(hash);
  }
  return golden;
}

const std::vector<std::string>& Strings() {
  static const std::vector<std::string> strings =
      testing::VariedStrings(kGoldens + "strings", kBlock * kBlocks);
  return strings;
}

// Hashes the ids, without and with special tokens found in the text, and the decoded texts.
uint32_t HashBlock(const Tokenizer& tokenizer, size_t block, bool show_special) {
  std::string all;
  for (size_t i = block * kBlock; i < (block + 1) * kBlock; ++i) {
    for (const bool parse : {false, true}) {
      auto ids = *tokenizer.Encode(Strings()[i], {.add_special = false, .parse_special = parse});
      const std::string text = *tokenizer.Decode(ids, {.skip_special = !show_special});
      ids.push_back(-1);
      all.append(reinterpret_cast<const char*>(ids.data()), 4 * ids.size());
      all += text;
    }
  }
  return testing::Fnv32(all);
}

class VendorVocabulary : public ::testing::TestWithParam<const char*> {};

TEST_P(VendorVocabulary, GivesTheIdsAndTheTextsOfTheVendorsTokenizer) {
  SKIP_WITHOUT(testing::FindRef("vocabularies"));
  const auto path = testing::FindRef(GetParam());
  ASSERT_TRUE(path.has_value()) << GetParam() << " is missing: run scripts/setup-test-refs";
  const auto tokenizer = OpenTokenizer(*path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  const Golden golden = ReadGolden(GetParam());
  ASSERT_EQ(golden.hashes.size(), kBlocks) << "tests/golden/vendor_ids.txt lacks " << GetParam();
  size_t differ = 0, first = 0;
  for (size_t block = kBlocks; block-- > 0;) {
    if (HashBlock(**tokenizer, block, golden.shows_special) == golden.hashes[block]) continue;
    ++differ;
    first = block;
  }
  EXPECT_EQ(differ, 0U) << "blocks of " << kBlock << " strings differ; the first one's strings:\n"
                        << "  python3 tests/golden/compare_tokenizers.py " << *path
                        << " --binary build/src/tokenizer/load/encode_records --long 0 --strings "
                        << kBlock << " --first " << first * kBlock;
}

std::string TestName(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, VendorVocabulary, ::testing::ValuesIn(kVocabularies), TestName);

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(VendorVocabularies, AreComparedWithoutException) {
  const auto folder = testing::FindRef("vocabularies");
  SKIP_WITHOUT(folder);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(*folder)) {
    if (!entry.is_regular_file() || entry.path().filename() == ".complete") continue;
    const std::string name = "vocabularies" + entry.path().string().substr(folder->size());
    if (name == kCopy) {
      EXPECT_EQ(ReadAll(entry.path()), ReadAll(*testing::FindRef(kCopied)));
    } else {
      EXPECT_TRUE(std::ranges::any_of(kVocabularies, [&](const std::string& listed) {
        return name == listed || name.starts_with(listed + "/");
      })) << name;
    }
  }
}

}  // namespace
}  // namespace tokamak
