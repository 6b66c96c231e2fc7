// Vendors' vocabularies, as their own packages carry them, against what their own tokenizers make
// of the same strings (tests/golden/make_vendor_goldens.py).
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "api/open_tokenizer.h"
#include "base/testing/refs.h"
#include "tokenizer/testing/test_strings.h"

namespace tokamak {
namespace {

TEST(VendorVocabularies, GiveTheIdsAndTheTextsOfTheVendorsTokenizers) {
  SKIP_WITHOUT(testing::FindRef("vocabularies"));
  std::ifstream goldens(std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/vendor_ids.txt");
  ASSERT_TRUE(goldens.good());
  std::string name;
  int count = 0, compared = 0;
  while (goldens >> name >> count) {
    const auto path = testing::FindRef(name);
    std::shared_ptr<const Tokenizer> tokenizer;
    if (path.has_value()) {
      const auto opened = OpenTokenizer(*path);
      ASSERT_TRUE(opened.ok()) << opened.status().ToString();
      tokenizer = *opened;
      ++compared;
    }
    int differ = 0, first = -1;
    for (int i = 0; i < count; ++i) {
      uint32_t expected = 0;
      goldens >> std::hex >> expected >> std::dec;
      if (tokenizer == nullptr) continue;
      const std::string text = testing::TestString(static_cast<uint64_t>(i));
      std::string all;
      std::string decoded;
      for (const bool parse : {false, true}) {
        auto ids = *tokenizer->Encode(text, {.add_special = false, .parse_special = parse});
        if (!parse) decoded = *tokenizer->Decode(ids);
        ids.push_back(-1);
        all.append(reinterpret_cast<const char*>(ids.data()), 4 * ids.size());
      }
      if (testing::Fnv32(all + decoded) == expected) continue;
      if (differ++ == 0) first = i;
    }
    EXPECT_EQ(differ, 0) << name << ": the first is string " << first;
  }
  EXPECT_GE(compared, 7);
}

}  // namespace
}  // namespace tokamak
