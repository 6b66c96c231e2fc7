// The files and their pixels come from Pillow (tests/golden/make_image_files.py).
#include "images/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <string_view>

#include "base/file.h"
#include "images/testing/ppm.h"

namespace tokamak {
namespace {

using testing::HasSubstr;

const std::string kFolder = TOKAMAK_SOURCE_DIR "/tests/golden/images/";

std::string ReadFile(const std::string& name) {
  return ReadWholeFile(kFolder + name, 1 << 20).value();
}

// All images there, by name.
std::map<std::string, std::string> Files() {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(".ppm")) files[name] = ReadFile(name);
  }
  return files;
}

Status Failure(std::string_view bytes, const DecodeLimits& limits = {}) {
  return DecodeImage(bytes, limits).status();
}

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

TEST(DecodeImage, EveryKindOfFileGivesPillowsPixels) {
  const auto files = Files();
  EXPECT_GT(files.size(), 50u);
  for (const auto& [name, bytes] : files) {
    const Result<Image> image = DecodeImage(bytes);
    ASSERT_TRUE(image.ok()) << name << ": " << image.status().ToString();
    const std::string expected = ReadFile(name + ".ppm"), got = ToPpm(*image);
    EXPECT_EQ(got.substr(0, 12), expected.substr(0, 12)) << name;
    EXPECT_TRUE(got == expected)
        << name << ": byte "
        << std::mismatch(got.begin(), got.end(), expected.begin(), expected.end()).first -
               got.begin();
  }
}

TEST(DecodeImage, ATruncatedFileIsAnErrorOrLacksNoPixel) {
  for (const auto& [name, bytes] : Files()) {
    const std::string whole = ToPpm(DecodeImage(bytes).value());
    int accepted = 0;
    for (size_t size = 0; size < bytes.size(); ++size) {
      // Copied, so that AddressSanitizer sees reads past the end.
      const Result<Image> image = DecodeImage(std::string(bytes.data(), size));
      if (!image.ok()) continue;
      ++accepted;
      EXPECT_TRUE(ToPpm(*image) == whole) << name << " of " << size << " bytes";
    }
    // The end marker holds no pixels, and frames after the first one do not count.
    EXPECT_LE(accepted, name == "animated.gif" ? 600 : 3) << name;
  }
}

TEST(DecodeImage, ChangedBytesHarmNothing) {
  std::mt19937 random(30);
  for (const auto& [name, bytes] : Files()) {
    for (int i = 0; i < 100; ++i) {
      std::string changed = bytes;
      for (int j = 0; j < 3; ++j) changed[random() % changed.size()] = static_cast<char>(random());
      const Result<Image> image = DecodeImage(changed, {.max_pixels = 1 << 20});
      if (!image.ok()) continue;
      EXPECT_EQ(image->rgb.size(), size_t{3} * image->width * image->height);
    }
  }
}

TEST(DecodeImage, LimitsAreCheckedForEveryFormat) {
  for (const char* name : {"gray.jpg", "rgb.png", "lossless.webp", "plain.gif"}) {
    const std::string bytes = ReadFile(name);
    EXPECT_TRUE(Failure(bytes, {bytes.size(), 23, 23 * 17}).ok()) << name;
    const Status long_file = Failure(bytes, {.max_bytes = bytes.size() - 1});
    const Status wide = Failure(bytes, {.max_side = 22});
    const Status large = Failure(bytes, {.max_pixels = (23 * 17) - 1});
    for (const Status& status : {long_file, wide, large}) {
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << name;
    }
    EXPECT_THAT(std::string(long_file.message()), HasSubstr("long, and the limit is"));
    EXPECT_THAT(std::string(wide.message()),
                HasSubstr("23 x 17 pixels, and each side may have 22"));
    EXPECT_THAT(std::string(large.message()),
                HasSubstr("23 x 17 = 391 pixels, and the limit is 390"));
  }
}

// The header of a PNG with 1 bit per pixel, which promises pixels that do not follow.
std::string Bomb(uint32_t width, uint32_t height) {
  std::string png = ReadFile("gray_1_bits.png");
  png.replace(16, 8, BigEndian(width) + BigEndian(height));
  // The header's checksum, bit by bit.
  uint32_t checksum = ~uint32_t{0};
  for (const char c : png.substr(12, 17)) {
    checksum ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) checksum = checksum >> 1 ^ ((checksum & 1) * 0xedb88320);
  }
  png.replace(29, 4, BigEndian(~checksum));
  return png;
}

TEST(DecodeImage, BombsAreRefusedBeforeTheirPixelsAreAllocated) {
  EXPECT_EQ(std::string(Failure(Bomb(1, 30000)).message()),
            "PNG image: it is 1 x 30000 pixels, and each side may have 16384; send a smaller one");
  EXPECT_EQ(Failure(Bomb(10000, 10000)).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Failure(Bomb(0x7fffffff, 0x7fffffff)).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Failure(Bomb(0, 5)).code(), StatusCode::kDataLoss);
  EXPECT_EQ(Failure(Bomb(1, 300)).code(), StatusCode::kDataLoss);
}

TEST(DecodeImage, AJpegHasAtMost100Scans) {
  const std::string jpeg = ReadFile("progressive.jpg");
  const size_t scan = jpeg.find("\xff\xda");
  const size_t next = std::min(jpeg.find("\xff\xc4", scan), jpeg.find("\xff\xda", scan + 2));
  const auto repeated = [&](int times) {
    std::string scans;
    for (int i = 0; i < times; ++i) scans += jpeg.substr(scan, next - scan);
    return jpeg.substr(0, scan) + scans + jpeg.substr(scan);
  };
  EXPECT_TRUE(Failure(repeated(50)).ok()) << Failure(repeated(50)).ToString();
  EXPECT_EQ(std::string(Failure(repeated(200)).message()),
            "JPEG image: it has more than 100 scans");
}

TEST(DecodeImage, CorruptDataWithinAJpegIsAnError) {
  std::string jpeg = ReadFile("subsampled.jpg");
  const size_t scan = jpeg.find("\xff\xda");
  jpeg.replace(scan + 40, 2, "\xff\xd9");  // the end comes early
  EXPECT_EQ(Failure(jpeg).code(), StatusCode::kDataLoss);
}

TEST(DecodeImage, AnUnsupportedJpegSaysSo) {
  std::string jpeg = ReadFile("gray.jpg");
  jpeg[jpeg.find("\xff\xc0") + 4] = 12;  // bits per sample
  EXPECT_EQ(Failure(jpeg).ToString(),
            "not supported: JPEG image: Unsupported JPEG data precision 12");
}

TEST(DecodeImage, OtherFormatsAreNamedByTheirFirstBytes) {
  EXPECT_EQ(Failure("").message(), "the image is empty");
  EXPECT_EQ(Failure("<svg xmlns=\"http://www.w3.org/2000/svg\">").message(),
            "the image is not a JPEG, PNG, WebP or GIF: it starts with \"<svg xmlns=\\\"\"");
  EXPECT_EQ(Failure(std::string("\0\0\0\x1c"
                                "ftypavif",
                                12))
                .message(),
            "the image is not a JPEG, PNG, WebP or GIF: it starts with "
            "\"\\x00\\x00\\x00\\x1cftypavif\"");
}

}  // namespace
}  // namespace tokamak
