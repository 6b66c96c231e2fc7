// Tests transposed weights, every second row, tensors as matrices, and MXFP4 in two tensors.
#include "weights/reordered.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ops/testing/memory_source.h"
#include "quant/quantize.h"
#include "weights/hf_checkpoint.h"
#include "weights/mxfp4_pair.h"
#include "weights/safetensors_tensors.h"

namespace tokamak {
namespace {

using ::testing::HasSubstr;

std::vector<float> Values(const WeightSource& source) {
  std::vector<std::byte> bytes(RowBytes(source.dtype(), source.shape().elements()));
  CHECK(source.ReadRows(0, source.shape().rows(), bytes.data()).ok());
  std::vector<float> values(static_cast<size_t>(source.shape().elements()));
  DequantizeRow(source.dtype(), bytes.data(), source.shape().elements(), values.data());
  return values;
}

TEST(Reordered, AConvolutionsWeightAsAMatrixHasTheSameElements) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto source = MemorySource::Random("w", dtype, {4, 3, 5, 7}, 1);
    const auto matrix = AsMatrix(source);
    ASSERT_TRUE(matrix.ok());
    EXPECT_EQ((*matrix)->shape(), (Shape{4, 3 * 5 * 7}));
    EXPECT_EQ(Values(**matrix), source->Dequantized());
    std::vector<std::byte> row(RowBytes(dtype, 3 * 5 * 7));
    ASSERT_TRUE((*matrix)->ReadRows(2, 3, row.data()).ok());
    std::vector<float> values(3 * 5 * 7);
    DequantizeRow(dtype, row.data(), 3 * 5 * 7, values.data());
    const std::vector<float> all = source->Dequantized();
    EXPECT_TRUE(std::equal(values.begin(), values.end(), all.begin() + 2 * 3 * 5 * 7));
  }
  EXPECT_THAT(AsMatrix(MemorySource::Random("w", DType::kQ8_0, {4, 3, 32}, 1)).status().ToString(),
              HasSubstr("w: type Q8_0 is not supported for a weight of shape [4, 3, 32]"));
}

TEST(Reordered, ChannelsLastInterleavesTheChannelsOfEachPlace) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto source = MemorySource::Random("w", dtype, {4, 3, 5, 7}, 1);
    const std::vector<float> all = source->Dequantized();
    const auto matrix = AsChannelsLastMatrix(source, 3);
    ASSERT_TRUE(matrix.ok());
    EXPECT_EQ((*matrix)->shape(), (Shape{4, 5 * 7 * 3}));
    const std::vector<float> values = Values(**matrix);
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t row = i / 105, place = i % 105 / 3, channel = i % 3;
      ASSERT_EQ(values[i], all[row * 105 + channel * 35 + place]);
    }
    std::vector<std::byte> bytes(RowBytes(dtype, 2 * 105));
    ASSERT_TRUE((*matrix)->ReadRows(1, 3, bytes.data()).ok());
    std::vector<float> two(2 * 105);
    DequantizeRow(dtype, bytes.data(), 2 * 105, two.data());
    EXPECT_TRUE(std::equal(two.begin(), two.end(), values.begin() + 105));
    const auto flat = AsChannelsLastMatrix(AsMatrix(source).value(), 3);
    EXPECT_EQ(Values(**flat), values);
  }
  EXPECT_THAT(AsChannelsLastMatrix(MemorySource::Random("w", DType::kQ8_0, {4, 3, 32}, 1), 3)
                  .status()
                  .ToString(),
              HasSubstr("w: type Q8_0 is not supported"));
}

TEST(Reordered, TransposedSwapsRowsAndColumns) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto source = MemorySource::Random("w", dtype, {3, 37, 19}, 1);
    const std::vector<float> all = source->Dequantized();
    const auto transposed = Transposed(source, 37, 74);  // the second matrix
    ASSERT_TRUE(transposed.ok());
    EXPECT_EQ((*transposed)->shape(), (Shape{19, 37}));
    const std::vector<float> values = Values(**transposed);
    for (size_t i = 0; i < 19; ++i) {
      for (size_t j = 0; j < 37; ++j) {
        ASSERT_EQ(values[i * 37 + j], all[(37 + j) * 19 + i]) << i << ", " << j;
      }
    }
    // Any rows, from many threads at once.
    const auto shared = *Transposed(source, 37, 74);
    std::vector<std::thread> threads;
    for (int64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::vector<std::byte> row(RowBytes(dtype, 37));
        std::vector<float> read(37);
        ASSERT_TRUE(shared->ReadRows(4 * t, 4 * t + 1, row.data()).ok());
        DequantizeRow(dtype, row.data(), 37, read.data());
        EXPECT_EQ(read[5], all[static_cast<size_t>((37 + 5) * 19 + 4 * t)]);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const auto blocks = MemorySource::Random("w", DType::kQ8_0, {4, 64}, 1);
  EXPECT_THAT(Transposed(blocks, 0, 4).status().ToString(), HasSubstr("Q8_0"));
}

TEST(Reordered, EveryNthRowPicksRows) {
  const auto source = MemorySource::Random("w", DType::kQ8_0, {7, 32}, 2);
  const std::vector<float> all = source->Dequantized();
  for (const int64_t first : {0, 1}) {
    const auto some = EveryNthRow(source, first, 2);
    ASSERT_EQ(some->shape(), (Shape{first == 0 ? 4 : 3, 32}));
    const std::vector<float> values = Values(*some);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], all[(i / 32 * 2 + static_cast<size_t>(first)) * 32 + i % 32]);
    }
    std::vector<std::byte> row(RowBytes(DType::kQ8_0, 32));
    ASSERT_TRUE(some->ReadRows(2, 3, row.data()).ok());
    std::vector<float> third(32);
    DequantizeRow(DType::kQ8_0, row.data(), 32, third.data());
    EXPECT_EQ(third, std::vector<float>(values.begin() + 64, values.begin() + 96));
  }
}

// A safetensors file with 4-bit elements [2, 3, 2, 16] and exponents [2, 3, 2].
class Mxfp4Pair : public ::testing::Test {
 protected:
  static constexpr int kBlocks = 2 * 3 * 2;

  std::shared_ptr<const SafetensorsModel> Model(const std::string& shape, const std::string& type) {
    const std::string header =
        R"({"w_blocks":{"dtype":"U8","shape":[2,3,2,16],"data_offsets":[0,192]},"w_scales":{"dtype":")" +
        type + R"(","shape":)" + shape + R"(,"data_offsets":[192,204]}})";
    const uint64_t length = header.size();
    std::string file(sizeof length, '\0');
    std::memcpy(file.data(), &length, sizeof length);
    file += header;
    data_.clear();
    std::mt19937 random(3);
    for (int i = 0; i < kBlocks * 16; ++i) data_.push_back(static_cast<uint8_t>(random()));
    for (int i = 0; i < kBlocks; ++i) data_.push_back(static_cast<uint8_t>(120 + random() % 15));
    file.append(reinterpret_cast<const char*>(data_.data()), data_.size());
    auto model = SafetensorsModel::FromParts({MakeMemoryBytes("m.safetensors", file)});
    CHECK_MSG(model.ok(), model.status().ToString());
    return *model;
  }

  std::vector<uint8_t> data_;
};

// e2m1: one sign bit, two exponent bits, one fraction bit. The earlier element is in the low half.
TEST_F(Mxfp4Pair, DequantizesAsTheFormatSays) {
  constexpr float kLevels[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const auto model = Model("[2,3,2]", "U8");
  const auto tensors = MakeSafetensorsTensors("folder", model, {});
  const auto weight = tensors->Find("w_blocks", Shape{2, 3, 64});
  ASSERT_TRUE(weight.ok()) << weight.status().ToString();
  EXPECT_TRUE(tensors->CheckAllUsed().ok());
  EXPECT_EQ((*weight)->dtype(), DType::kMXFP4);
  const std::vector<float> values = Values(**weight);
  ASSERT_EQ(values.size(), 32u * kBlocks);
  for (size_t i = 0; i < values.size(); ++i) {
    const int code = data_[i / 2] >> (i % 2 * 4) & 15;
    const float level = kLevels[code & 7] * (code >= 8 ? -1.0f : 1.0f);
    EXPECT_EQ(values[i], std::ldexp(level, data_[kBlocks * 16 + i / 32] - 127)) << i;
  }
  EXPECT_THAT(tensors->Find("w_blocks", Shape{2, 3, 32}).status().ToString(),
              HasSubstr("has shape [2, 3, 64], expected [2, 3, 32]"));
}

TEST_F(Mxfp4Pair, RefusesTensorsThatDoNotMatch) {
  for (const auto& [shape, type] : std::vector<std::pair<std::string, std::string>>{
           {"[2,2,3]", "U8"}, {"[12]", "U8"}, {"[2,3,2]", "I8"}}) {
    const auto tensors = MakeSafetensorsTensors("folder", Model(shape, type), {});
    EXPECT_THAT(tensors->Find("w_blocks", Shape{2, 3, 64}).status().ToString(),
                HasSubstr("do not form an MXFP4 weight"));
  }
}

}  // namespace
}  // namespace tokamak
