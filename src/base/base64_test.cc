#include "base/base64.h"

#include <gtest/gtest.h>

#include <utility>

namespace tokamak {
namespace {

// RFC 4648, section 10.
TEST(Base64, DecodesTheVectorsOfTheStandard) {
  const std::pair<std::string_view, std::string_view> vectors[] = {{"", ""},
                                                                   {"Zg==", "f"},
                                                                   {"Zm8=", "fo"},
                                                                   {"Zm9v", "foo"},
                                                                   {"Zm9vYg==", "foob"},
                                                                   {"Zm9vYmE=", "fooba"},
                                                                   {"Zm9vYmFy", "foobar"},
                                                                   {"+/+/", "\xfb\xff\xbf"}};
  for (const auto& [text, expected] : vectors) {
    std::string bytes;
    EXPECT_TRUE(DecodeStrictBase64(text, bytes)) << text;
    EXPECT_EQ(bytes, expected);
    EXPECT_TRUE(DecodeBase64(text, bytes)) << text;
    EXPECT_EQ(bytes, expected);
  }
}

TEST(Base64, AcceptsMissingPaddingAndUnusedBitsUnlessStrict) {
  for (const auto& [text, expected] :
       {std::pair{"Zg", "f"}, {"Zm8", "fo"}, {"Zh==", "f"}, {"Zm9=", "fo"}}) {
    std::string bytes;
    EXPECT_TRUE(DecodeBase64(text, bytes)) << text;
    EXPECT_EQ(bytes, expected);
    EXPECT_FALSE(DecodeStrictBase64(text, bytes)) << text;
  }
}

TEST(Base64, RefusesOtherTexts) {
  for (const std::string_view text :
       {"Z", "Zm9vY", "Zg=", "Zg===", "=", "==", "====", "Z===", "=Zg=", "Zg==Zg==", "Zm9v\n",
        " Zm9v", "Zm 9", "Zm-_", "Zm%3D", "Zm9\xc3"}) {
    std::string bytes;
    EXPECT_FALSE(DecodeBase64(text, bytes)) << text;
    EXPECT_FALSE(DecodeStrictBase64(text, bytes)) << text;
  }
}

}  // namespace
}  // namespace tokamak
