#include "weights/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "base/file.h"
#include "quant/quantize.h"
#include "weights/testing/gguf_writer.h"

namespace tokamak {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using GgufPtr = std::shared_ptr<const GgufFile>;

Result<GgufPtr> Parse(std::string bytes) {
  return GgufFile::FromParts({MakeMemoryBytes("test.gguf", std::move(bytes))});
}
Result<GgufPtr> Parse(const GgufWriter& writer) { return Parse(writer.Bytes()); }

std::string ErrorOf(const Result<GgufPtr>& result) {
  return result.ok() ? "no error" : result.status().ToString();
}

template <typename T>
std::string Le(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}

std::vector<float> Ramp(int n) {
  std::vector<float> values(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i) * 0.25f - 4;
  return values;
}

// A file with every kind of value and two tensors.
GgufWriter SmallFile(uint32_t version = 3) {
  GgufWriter writer(version);
  writer.Set("general.architecture", "llama");
  writer.Set("b", true);
  writer.Set("f", 0.5f);
  writer.Set("d", 0.25);
  writer.Set("i", int64_t{-3}, GgufType::kInt32);
  writer.SetArray("strings", std::vector<std::string>{"x", "", "yz"});
  writer.SetArray("ints", std::vector<int32_t>{1, -2});
  // [[7], []] of uint8.
  writer.SetRaw("nested", 9,
                Le<uint32_t>(9) + Le<uint64_t>(2) + Le<uint32_t>(0) + Le<uint64_t>(1) + "\x07" +
                    Le<uint32_t>(0) + Le<uint64_t>(0));
  writer.AddTensor("a.weight", DType::kQ8_0, {2, 32}, Ramp(64));
  writer.AddTensor("n.weight", DType::kF32, {5}, Ramp(5));
  return writer;
}

TEST(Gguf, ReadsEveryTypeOfValueInBothVersions) {
  for (uint32_t version : {2u, 3u}) {
    GgufWriter writer(version);
    const GgufType integers[] = {GgufType::kUint8,  GgufType::kInt8,   GgufType::kUint16,
                                 GgufType::kInt16,  GgufType::kUint32, GgufType::kInt32,
                                 GgufType::kUint64, GgufType::kInt64};
    for (GgufType type : integers) writer.Set(Name(type), int64_t{100}, type);
    writer.Set("negative", int64_t{-5}, GgufType::kInt64);
    writer.Set("huge", int64_t{-1}, GgufType::kUint64);
    writer.Set("float32", 1.5f);
    writer.Set("float64", 0.1);
    writer.Set("bool", false);
    writer.Set("string", "text");
    const Result<GgufPtr> file = Parse(writer);
    ASSERT_TRUE(file.ok()) << ErrorOf(file);
    EXPECT_EQ((*file)->parts()[0].version, version);
    const GgufMetadata& metadata = (*file)->metadata();
    for (GgufType type : integers) {
      const GgufValue* value = metadata.Find(Name(type));
      ASSERT_NE(value, nullptr);
      EXPECT_EQ(value->type(), type);
      EXPECT_EQ(value->Int(), 100);
      EXPECT_EQ(value->Uint(), 100u);
      EXPECT_EQ(value->Number(), 100.0);
      EXPECT_EQ(value->Bool(), std::nullopt);
      EXPECT_EQ(value->String(), std::nullopt);
    }
    EXPECT_EQ(metadata.Find("negative")->Int(), -5);
    EXPECT_EQ(metadata.Find("negative")->Uint(), std::nullopt);
    EXPECT_EQ(metadata.Find("huge")->Int(), std::nullopt);
    EXPECT_EQ(metadata.Find("huge")->Uint(), UINT64_MAX);
    EXPECT_EQ(metadata.Find("float32")->Number(), 1.5);
    EXPECT_EQ(metadata.Find("float64")->Number(), 0.1);
    EXPECT_EQ(metadata.Find("float64")->Int(), std::nullopt);
    EXPECT_EQ(metadata.Find("bool")->Bool(), false);
    EXPECT_EQ(metadata.Find("string")->String(), "text");
    EXPECT_EQ(metadata.Find("absent"), nullptr);
  }
}

TEST(Gguf, ReadsArraysOfScalarsStringsAndArrays) {
  const Result<GgufPtr> file = Parse(SmallFile());
  ASSERT_TRUE(file.ok()) << ErrorOf(file);
  const GgufMetadata& metadata = (*file)->metadata();
  EXPECT_THAT(*metadata.Strings("strings"), testing::ElementsAre("x", "", "yz"));
  EXPECT_THAT(*metadata.Ints("ints"), testing::ElementsAre(1, -2));
  EXPECT_THAT(*metadata.Numbers("ints"), testing::ElementsAre(1.0, -2.0));
  const GgufValue* nested = metadata.Find("nested");
  ASSERT_EQ(nested->size(), 2u);
  EXPECT_EQ(nested->element_type(), GgufType::kArray);
  EXPECT_EQ(nested->Element(0).Element(0).Int(), 7);
  EXPECT_EQ(nested->Element(1).size(), 0u);
}

TEST(Gguf, GettersNameTheKeyAndBothTypes) {
  const Result<GgufPtr> file = Parse(SmallFile());
  ASSERT_TRUE(file.ok());
  const GgufMetadata& metadata = (*file)->metadata();
  EXPECT_THAT(metadata.Int("absent").status().ToString(),
              AllOf(HasSubstr("test.gguf"), HasSubstr("\"absent\"")));
  EXPECT_THAT(metadata.Int("b").status().ToString(),
              AllOf(HasSubstr("\"b\" has type bool"), HasSubstr("an integer")));
  EXPECT_THAT(metadata.Strings("b").status().ToString(), HasSubstr("an array of strings"));
  EXPECT_THAT(metadata.Strings("ints").status().ToString(), HasSubstr("\"ints\"[0]"));
}

TEST(Gguf, TensorsAreOutByInAndReadByRows) {
  const Result<GgufPtr> file = Parse(SmallFile());
  ASSERT_TRUE(file.ok());
  const StoredTensor* tensor = (*file)->FindTensor("a.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, (Shape{2, 32}));
  EXPECT_EQ(tensor->type_name, "Q8_0");
  EXPECT_EQ(tensor->bytes, 68u);
  EXPECT_EQ(tensor->offset % 32, 0u);
  const auto weight = (*file)->Weight(*tensor);
  ASSERT_TRUE(weight.ok());
  EXPECT_EQ((*weight)->name(), "test.gguf: \"a.weight\"");
  std::vector<std::byte> row(34);
  ASSERT_TRUE((*weight)->ReadRows(1, 2, row.data()).ok());
  std::vector<float> values(32);
  DequantizeRow(DType::kQ8_0, row.data(), 32, values.data());
  for (int i = 0; i < 32; ++i) {
    EXPECT_NEAR(values[static_cast<size_t>(i)], (i + 32) * 0.25 - 4, 0.05);
  }
}

TEST(Gguf, SizesOfReadableTypesAreThoseOfTheDTypes) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dtype == DType::kI8Blocks || dtype == DType::kF8E4M3) continue;  // GGUF has neither
    const GgufTensorType* type = FindGgufTensorType(GgufTensorTypeId(dtype));
    ASSERT_NE(type, nullptr);
    EXPECT_EQ(type->name, Name(dtype));
    EXPECT_EQ(type->block_elements, Info(dtype).block_elements);
    EXPECT_EQ(type->block_bytes, Info(dtype).block_bytes);
  }
}

TEST(Gguf, UnreadableTensorTypeIsListedAndRefusedOnlyWhenRead) {
  GgufWriter writer;
  writer.AddRawTensor("iq", 16, {1, 256}, std::string(66, 'x'));
  writer.AddRawTensor("new", 777, {1, 256}, std::string(10, 'x'));
  const Result<GgufPtr> file = Parse(writer);
  ASSERT_TRUE(file.ok()) << ErrorOf(file);
  EXPECT_EQ((*file)->tensors()[0].type_name, "IQ2_XXS");
  EXPECT_EQ((*file)->tensors()[0].bytes, 66u);
  EXPECT_EQ((*file)->tensors()[1].type_name, "type 777");
  EXPECT_EQ((*file)->tensors()[1].bytes, std::nullopt);
  for (const StoredTensor& tensor : (*file)->tensors()) {
    const auto weight = (*file)->Weight(tensor);
    ASSERT_FALSE(weight.ok());
    EXPECT_EQ(weight.status().code(), StatusCode::kUnimplemented);
    EXPECT_THAT(weight.status().ToString(),
                AllOf(HasSubstr(tensor.name), HasSubstr(tensor.type_name)));
  }
}

// ---- Malformed files --------------------------------------------------------------------------

struct Malformed {
  const char* name;
  std::function<std::string()> bytes;
  const char* offset;  // "at byte N"
  const char* message;
};

std::string Header(uint32_t version, uint64_t tensors, uint64_t entries) {
  return "GGUF" + Le(version) + Le(tensors) + Le(entries);
}
std::string Str(const std::string& text) { return Le<uint64_t>(text.size()) + text; }

// One tensor named "t" (at byte 24) with these dimensions, type and offset, followed by `data`
// bytes.
std::string OneTensor(const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset,
                      size_t data) {
  std::string out = Header(3, 1, 0) + Str("t") + Le(static_cast<uint32_t>(dims.size()));
  for (uint64_t dim : dims) out += Le(dim);
  out += Le(type) + Le(offset);
  out.resize((out.size() + 31) / 32 * 32 + data, '\0');
  return out;
}
std::string Entry(const std::string& value) {
  return Header(3, 0, 1) + Str("k") + value + "pad pad";
}

const Malformed kMalformed[] = {
    {"Empty", [] { return std::string(); }, "at byte 0", "header, magic"},
    {"WrongMagic", [] { return std::string("GGML") + std::string(60, 'x'); }, "at byte 0", "magic"},
    {"Version1", [] { return Header(1, 0, 0); }, "at byte 4", "versions 2 and 3"},
    {"Version4", [] { return Header(4, 0, 0); }, "at byte 4", "versions 2 and 3"},
    {"BigEndian", [] { return Header(0x03000000, 0, 0); }, "at byte 4", "big-endian"},
    {"TensorCount", [] { return Header(3, uint64_t{1} << 62, 0); }, "at byte 8", "tensor count"},
    {"MetadataCount", [] { return Header(3, 0, uint64_t{1} << 62); }, "at byte 16",
     "metadata count"},
    {"KeyLength", [] { return Header(3, 0, 1) + Le(UINT64_MAX) + "xxxxx"; }, "at byte 32",
     "metadata 0, key"},
    {"EmptyKey", [] { return Header(3, 0, 1) + Str("") + std::string(20, 'x'); }, "at byte 32",
     "is 0 bytes long"},
    {"DuplicateKey",
     [] {
       GgufWriter writer;
       writer.Set("twice", 1);
       writer.Set("twice", 2);
       return writer.Bytes();
     },
     "at byte ", "metadata 1 \"twice\", key: appears twice"},
    {"ValueType", [] { return Entry(Le<uint32_t>(13)); }, "at byte 33", "13 is not a type"},
    {"Bool", [] { return Entry(Le<uint32_t>(7) + "\x02"); }, "at byte 37", "0 or 1"},
    {"BoolInArray",
     [] { return Entry(Le<uint32_t>(9) + Le<uint32_t>(7) + Le<uint64_t>(2) + "\x01\x02"); },
     "at byte 49", "0 or 1"},
    {"StringLength", [] { return Entry(Le<uint32_t>(8) + Le<uint64_t>(1000)); }, "at byte 45",
     "metadata 0 \"k\", value: needs 1000 bytes"},
    {"ArrayOfNumbersLength",
     [] { return Entry(Le<uint32_t>(9) + Le<uint32_t>(12) + Le(uint64_t{1} << 61)); }, "at byte 41",
     "array length"},
    {"ArrayOfStringsLength",
     [] { return Entry(Le<uint32_t>(9) + Le<uint32_t>(8) + Le(uint64_t{1} << 61)); }, "at byte 41",
     "array length"},
    {"ArrayOfArraysLength",
     [] { return Entry(Le<uint32_t>(9) + Le<uint32_t>(9) + Le(uint64_t{1} << 61)); }, "at byte 41",
     "array length"},
    {"DeepArray",
     [] {
       std::string value = Le<uint32_t>(9);
       for (int i = 0; i < 6; ++i) value += Le<uint32_t>(9) + Le<uint64_t>(1);
       return Entry(value);
     },
     "at byte ", "nested more than 4 levels deep"},
    {"AlignmentNotAPowerOfTwo",
     [] {
       GgufWriter writer;
       writer.Set("general.alignment", 48);
       return writer.Bytes();
     },
     "at byte 53", "power of two"},
    {"AlignmentZero",
     [] {
       GgufWriter writer;
       writer.Set("general.alignment", 0);
       return writer.Bytes();
     },
     "at byte 53", "power of two"},
    {"TooManyDimensions",
     [] {
       return OneTensor({1, 1, 1, 1, 1}, 0, 0, 32);
     },
     "at byte 33", "number of dimensions"},
    {"DimensionZero",
     [] {
       return OneTensor({4, 0}, 0, 0, 32);
     },
     "at byte 45", "dimension 1 is 0"},
    {"DimensionsOverflow",
     [] {
       return OneTensor({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0, 32);
     },
     "at byte 45", "more than 2^63"},
    {"DimensionNegative", [] { return OneTensor({UINT64_MAX}, 0, 0, 32); }, "at byte 37",
     "more than 2^63"},
    {"LargerThanFile", [] { return OneTensor({uint64_t{1} << 62}, 0, 0, 32); }, "at byte 45",
     "larger than the whole file"},
    {"PartialBlock", [] { return OneTensor({33}, 8, 0, 64); }, "at byte 45", "Q8_0 packs 32"},
    {"MisalignedOffset", [] { return OneTensor({4}, 0, 16, 64); }, "at byte 49", "alignment 32"},
    {"OffsetPastTheEnd", [] { return OneTensor({4}, 0, 1 << 20, 64); }, "at byte 57",
     "past the end of the file"},
    {"OffsetOverflow", [] { return OneTensor({4}, 0, ~uint64_t{31}, 64); }, "at byte 57",
     "past the end of the file"},
    {"DataCutShort", [] { return OneTensor({16}, 0, 0, 63); }, "at byte 57",
     "past the end of the file"},
    {"DuplicateTensor",
     [] {
       GgufWriter writer;
       writer.AddTensor("same", DType::kF32, {4}, Ramp(4));
       writer.AddTensor("same", DType::kF32, {4}, Ramp(4));
       return writer.Bytes();
     },
     "at byte 128", "\"same\" appears twice"},
    {"OverlappingTensors",
     [] {
       std::string out = Header(3, 2, 0);
       for (const char* name : {"t", "u"}) {
         out += Str(name) + Le<uint32_t>(1) + Le<uint64_t>(4) + Le<uint32_t>(0) + Le<uint64_t>(0);
       }
       out.resize(160, '\0');
       return out;
     },
     "at byte 96", "overlap"},
};

class GgufMalformedTest : public testing::TestWithParam<Malformed> {};
INSTANTIATE_TEST_SUITE_P(Files, GgufMalformedTest, testing::ValuesIn(kMalformed),
                         [](const auto& info) { return info.param.name; });

TEST_P(GgufMalformedTest, IsRefusedNamingFileOffsetAndField) {
  const Result<GgufPtr> file = Parse(GetParam().bytes());
  EXPECT_THAT(ErrorOf(file), AllOf(HasSubstr("test.gguf: at byte "), HasSubstr(GetParam().offset),
                                   HasSubstr(GetParam().message)));
}

// A file of 2^50 bytes: `start`, then zeros.
class HugeSource final : public ByteSource {
 public:
  explicit HugeSource(std::string start) : start_(std::move(start)) {}
  const std::string& name() const override { return name_; }
  uint64_t size() const override { return uint64_t{1} << 50; }
  Status ReadAt(uint64_t offset, void* destination, size_t size) const override {
    largest_read_ = std::max(largest_read_, size);
    std::memset(destination, 0, size);
    if (offset < start_.size()) {
      std::memcpy(destination, start_.data() + offset, std::min(size, start_.size() - offset));
    }
    return Status();
  }
  size_t largest_read() const { return largest_read_; }

 private:
  const std::string name_ = "huge.gguf";
  const std::string start_;
  mutable size_t largest_read_ = 0;
};

TEST(Gguf, HugeFileDoesNotMakeHostileCountsAllocate) {
  constexpr uint64_t kMany = uint64_t{1} << 40;
  const auto entry = [](const std::string& value) { return Header(3, 0, 1) + Str("k") + value; };
  const auto array = [&](uint32_t type, uint64_t count) {
    return entry(Le<uint32_t>(9) + Le(type) + Le(count));
  };
  const std::pair<std::string, const char*> cases[] = {
      {Header(3, kMany, 0), "tensor count: 1099511627776; at most 1048576"},
      {Header(3, 1 << 20, 0), "tensor 0, name: is 0 bytes long"},
      {Header(3, 0, kMany), "metadata count: 1099511627776; at most 65536"},
      {Header(3, 0, 1) + Le(kMany), "key: the metadata is longer than"},
      {entry(Le<uint32_t>(8) + Le(kMany)), "value: the metadata is longer than"},
      {array(4, kMany), "array elements: the metadata is longer than"},
      {array(9, kMany), "more than 1048576 arrays of arrays"},
      {array(8, kMany), "array element: the metadata is longer than"},
  };
  for (const auto& [start, message] : cases) {
    const auto source = std::make_shared<HugeSource>(start);
    EXPECT_THAT(ErrorOf(GgufFile::FromParts({source})), HasSubstr(message));
    EXPECT_LE(source->largest_read(), size_t{256} << 20);
  }
}

TEST(Gguf, EveryTruncationIsRefused) {
  const std::string bytes = SmallFile().Bytes();
  ASSERT_TRUE(Parse(bytes).ok());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Result<GgufPtr> file = Parse(bytes.substr(0, size));
    ASSERT_FALSE(file.ok()) << "the first " << size << " bytes were accepted";
    ASSERT_THAT(ErrorOf(file), HasSubstr("test.gguf: at byte ")) << size;
  }
}

// Reads everything, as a user of the file would.
void Walk(const GgufFile& file) {
  std::function<void(const GgufValue&)> visit = [&](const GgufValue& value) {
    value.Number();
    value.String();
    for (uint64_t i = 0; value.is_array() && i < value.size(); ++i) visit(value.Element(i));
  };
  for (const auto& entry : file.metadata().entries()) visit(entry.value);
  for (const StoredTensor& tensor : file.tensors()) {
    const auto weight = file.Weight(tensor);
    if (!weight.ok()) continue;
    std::vector<std::byte> data(*tensor.bytes);
    EXPECT_TRUE((*weight)->ReadRows(0, tensor.shape.rows(), data.data()).ok());
  }
}

TEST(Gguf, EveryBitFlipIsRefusedOrReadable) {
  const std::string bytes = SmallFile().Bytes();
  int refused = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = bytes;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      const Result<GgufPtr> file = Parse(flipped);
      if (file.ok()) {
        Walk(**file);
      } else {
        ++refused;
        ASSERT_THAT(ErrorOf(file), HasSubstr("test.gguf: at byte "))
            << "bit " << bit << " of " << i;
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Gguf, ReportsAFileThatShrankAfterOpening) {
  const std::string path = testing::TempDir() + "shrinking.gguf";
  ASSERT_TRUE(SmallFile().WriteFile(path).ok());
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok());
  const auto weight = (*file)->Weight((*file)->tensors()[1]);
  ASSERT_TRUE(weight.ok());
  std::fclose(std::fopen(path.c_str(), "wb"));
  std::vector<std::byte> row(20);
  EXPECT_THAT((*weight)->ReadRows(0, 1, row.data()).ToString(),
              AllOf(HasSubstr("n.weight"), HasSubstr("ends at byte")));
}

// ---- Split models -----------------------------------------------------------------------------

GgufWriter Part(int index, int count, int tensors_in_all, const std::string& tensor) {
  GgufWriter writer;
  writer.Set("split.no", int64_t{index}, GgufType::kUint16);
  writer.Set("split.count", int64_t{count}, GgufType::kUint16);
  writer.Set("split.tensors.count", int64_t{tensors_in_all}, GgufType::kInt32);
  writer.AddTensor(tensor, DType::kF32, {4}, Ramp(4));
  return writer;
}

Result<GgufPtr> OpenParts(const std::vector<GgufWriter>& writers, const std::string& stem) {
  for (size_t i = 0; i < writers.size(); ++i) {
    char suffix[40];
    std::snprintf(suffix, sizeof(suffix), "-%05zu-of-%05zu.gguf", i + 1, writers.size());
    EXPECT_TRUE(writers[i].WriteFile(testing::TempDir() + stem + suffix).ok());
  }
  char first[40];
  std::snprintf(first, sizeof(first), "-00001-of-%05zu.gguf", writers.size());
  return GgufFile::Open(testing::TempDir() + stem + first);
}

TEST(GgufSplit, OpensSiblingsAndReadsTensorsOfEach) {
  const auto file = OpenParts({Part(0, 3, 3, "a"), Part(1, 3, 3, "b"), Part(2, 3, 3, "c")}, "ok");
  ASSERT_TRUE(file.ok()) << ErrorOf(file);
  EXPECT_EQ((*file)->parts().size(), 3u);
  ASSERT_NE((*file)->FindTensor("c"), nullptr);
  EXPECT_EQ((*file)->FindTensor("c")->part, 2);
  Walk(**file);
}

TEST(GgufSplit, NamesAMissingPart) {
  ASSERT_TRUE(Part(0, 2, 2, "a").WriteFile(testing::TempDir() + "gone-00001-of-00002.gguf").ok());
  EXPECT_THAT(ErrorOf(GgufFile::Open(testing::TempDir() + "gone-00001-of-00002.gguf")),
              HasSubstr("gone-00002-of-00002.gguf: no such file"));
}

TEST(GgufSplit, RefusesALaterPartAndNamesTheFirst) {
  const std::string path = testing::TempDir() + "late-00002-of-00002.gguf";
  ASSERT_TRUE(Part(1, 2, 2, "b").WriteFile(path).ok());
  EXPECT_THAT(ErrorOf(GgufFile::Open(path)),
              AllOf(HasSubstr("part 2 of 2"), HasSubstr("-00001-of-00002.gguf")));
}

TEST(GgufSplit, ARenamedFirstPartIsRefused) {
  const std::string path = testing::TempDir() + "renamed.gguf";
  ASSERT_TRUE(Part(0, 2, 2, "a").WriteFile(path).ok());
  EXPECT_THAT(ErrorOf(GgufFile::Open(path)), HasSubstr("must end in -00001-of-00002.gguf"));
}

TEST(GgufSplit, PartsThatDisagreeAreRefused) {
  EXPECT_THAT(ErrorOf(OpenParts({Part(0, 2, 2, "a"), Part(0, 2, 2, "b")}, "order")),
              HasSubstr("it is part 1 of 2, but it was opened as part 2 of 2"));
  EXPECT_THAT(ErrorOf(OpenParts({Part(0, 2, 2, "a"), Part(1, 3, 2, "b")}, "count")),
              HasSubstr("part 2 of 3"));
  EXPECT_THAT(ErrorOf(OpenParts({Part(0, 2, 5, "a"), Part(1, 2, 5, "b")}, "tensors")),
              HasSubstr("\"split.tensors.count\" is 5, but the 2 parts have 2 tensors"));
  EXPECT_THAT(ErrorOf(OpenParts({Part(0, 2, 2, "a"), Part(1, 2, 2, "a")}, "same")),
              HasSubstr("\"a\" appears twice"));
}

TEST(GgufSplit, HostileCountsAreRefused) {
  for (const auto& [index, count] : {std::pair{0, 60000}, std::pair{3, 2}, std::pair{2, 2}}) {
    EXPECT_THAT(ErrorOf(Parse(Part(index, count, 1, "a"))), HasSubstr("part number below"));
  }
}

}  // namespace
}  // namespace tokamak
