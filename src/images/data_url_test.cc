#include "images/data_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace tokamak {
namespace {

using testing::HasSubstr;

TEST(DataUrl, GivesTheBytes) {
  const std::pair<std::string, std::string> cases[] = {
      {"data:image/png;base64,Zm9v", "foo"},
      {"DATA:Image/JPEG;BASE64,Zg==", "f"},
      {"data:image/svg+xml;charset=utf-8;base64,Zm8=", "fo"},  // bytes tell the format
  };
  for (const auto& [url, bytes] : cases) {
    const auto decoded = DecodeDataUrl(url);
    ASSERT_TRUE(decoded.ok()) << url << decoded.status().ToString();
    EXPECT_EQ(*decoded, bytes);
  }
}

TEST(DataUrl, RefusesOtherUrlsAndSaysWhy) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "must be a data: URL"},
      {"x", "must be a data: URL (data:image/png;base64,iVBORw0...), got \"x\""},
      {"data:", "must be a data: URL"},
      {"data:image/png;base64", "must be a data: URL"},
      {"http://example.org/a,b", "must be a data: URL"},
      {" data:image/png;base64,Zm9v", "must be a data: URL"},
      {"data:,Zm9v", "the media type"},
      {"data:;base64,Zm9v", "the media type"},
      {"data:image/png,Zm9v", "with base64 (image/png;base64), got \"image/png\""},
      {"data:image/png;base64;x,Zm9v", "the media type"},
      {"data:text/plain;base64,Zm9v", "got \"text/plain;base64\""},
      {"data:image/png;base64,Zm9vYg", "not valid base64"},
      {"data:image/png;base64,Zh==", "not valid base64"},
      {"data:image/png;base64,Zm9v\n", "not valid base64"},
      {"data:image/png;base64,Zm9%76", "not valid base64"},
      {"data:image/png;base64,Zm9_", "not valid base64"},
      {"data:image/png;base64,Zm9v,Zm9v", "not valid base64"},
      {"data:image/png;base64,", "the image is empty"},
      {"data:image/png;base64,Zm9", "not valid base64"},
      {"data:image/png;base64,==", "not valid base64"},
  };
  for (const auto& [url, expected] : cases) {
    const Status status = DecodeDataUrl(url).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << url;
    EXPECT_THAT(status.ToString(), HasSubstr(expected)) << url;
  }
  // Only the beginning of a long text is repeated.
  EXPECT_LT(DecodeDataUrl(std::string(1 << 20, 'x')).status().message().size(), 200u);
}

TEST(DataUrl, TheLimitCountsDecodedBytes) {
  const DecodeLimits limits{.max_bytes = 4};
  EXPECT_TRUE(DecodeDataUrl("data:image/png;base64,Zm9vYg==", limits).ok());
  const Status status = DecodeDataUrl("data:image/png;base64,Zm9vYmE=", limits).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.ToString(), HasSubstr("the limit is"));
}

}  // namespace
}  // namespace tokamak
