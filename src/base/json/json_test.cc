#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json/json_reader.h"
#include "base/json/json_value.h"

namespace tokamak {
namespace {

using testing::ElementsAre;
using Kind = JsonValue::Kind;

JsonValue Parse(std::string_view text) {
  const std::optional<JsonValue> value = JsonValue::Parse(text, {});
  EXPECT_TRUE(value.has_value()) << text;
  return value.value_or(JsonValue());
}

TEST(JsonValue, KeepsKindsOfNumbers) {
  EXPECT_EQ(Parse("-9223372036854775808").AsInt(), INT64_MIN);
  EXPECT_EQ(Parse("9223372036854775807").AsInt(), INT64_MAX);
  const JsonValue natural = Parse("18446744073709551615");
  EXPECT_EQ(natural.kind(), Kind::kUint);
  EXPECT_EQ(natural.AsUint(), UINT64_MAX);
  EXPECT_EQ(natural.AsDouble(), 18446744073709551616.0);
  EXPECT_EQ(*Parse("-123456789012345678901").AsBigInt(), "-123456789012345678901");
  EXPECT_EQ(Parse("123456789012345678901").AsDouble(), 123456789012345678901.0);
  EXPECT_EQ(Parse("1.0").kind(), Kind::kDouble);
  EXPECT_EQ(Parse("1").AsDouble(), std::nullopt);
  EXPECT_EQ(Parse("1").AsNumber(), 1.0);
  EXPECT_EQ(Parse("-1").AsUint(), std::nullopt);
}

TEST(JsonValue, FindsMembersOfObjectsOfAnySize) {
  for (const int count : {1, 15, 16, 17, 1000}) {
    std::string text = "{";
    for (int i = 0; i < count; ++i) text += "\"n" + std::to_string(i) + "\": 0, ";
    for (int i = 0; i < count; ++i) {
      text += "\"n" + std::to_string(i) + "\": " + std::to_string(i) + (i + 1 < count ? "," : "}");
    }
    JsonValue value = Parse(text);  // each name twice: the last value counts
    ASSERT_EQ(value.size(), static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      const std::string name = "n" + std::to_string(i);
      EXPECT_EQ((*value.AsObject())[static_cast<size_t>(i)].first, name);
      EXPECT_EQ(value.Find(name)->AsInt(), i);
    }
    EXPECT_EQ(value.Find("n"), nullptr);
    const JsonValue copy = value;
    EXPECT_FALSE(value.Set("n0", "changed"));
    EXPECT_TRUE(value.Set("new", 1));
    EXPECT_EQ(*value.Find("n0")->AsString(), "changed");
    EXPECT_EQ(copy.Find("n0")->AsInt(), 0);
    EXPECT_EQ(copy.Find("new"), nullptr);
  }
}

TEST(JsonValue, ComparesNumbersByValueAndObjectsByMembers) {
  EXPECT_EQ(Parse("1"), Parse("1.0"));
  EXPECT_NE(Parse("1"), Parse("true"));
  EXPECT_NE(Parse("0"), Parse("null"));
  EXPECT_EQ(Parse(R"({"a": [1, 2], "b": {"c": "d"}})"),
            Parse(R"({"b": {"c": "d"}, "a": [1, 2.0]})"));
  EXPECT_NE(Parse(R"({"a": 1})"), Parse(R"({"b": 1})"));
  EXPECT_NE(Parse(R"({"a": 1})"), Parse(R"({"a": 1, "b": 1})"));
}

TEST(JsonValue, SaysWhyATextIsRefused) {
  const JsonLimits limits = {.max_bytes = 100, .max_depth = 2, .distinct_names = true};
  const std::tuple<std::string, JsonError::Kind, size_t, std::string> cases[] = {
      {std::string(101, ' '), JsonError::kTooLong, 0, ""},
      {"[[[]]]", JsonError::kTooDeep, 0, ""},
      {R"({"a": 1, "a": 2})", JsonError::kRepeatedName, 0, "a"},
      {"[1e999]", JsonError::kOutOfRange, 6, "1e999"},
      {"[1,]", JsonError::kMalformed, 4, "1,]"},
      {"", JsonError::kMalformed, 1, ""},
  };
  for (const auto& [text, kind, byte, what] : cases) {
    JsonError error;
    EXPECT_FALSE(JsonValue::Parse(text, limits, &error)) << text;
    EXPECT_EQ(error.kind, kind) << text;
    if (kind != JsonError::kMalformed && kind != JsonError::kOutOfRange) continue;
    EXPECT_EQ(error.byte, byte) << text;
  }
  EXPECT_TRUE(JsonValue::Parse("[[1, {}]]", {.max_depth = 3}));
}

TEST(JsonValue, DumpsWhatItParsed) {
  const std::string text =
      R"({"b":[1,-2,0.5,1e+300,true,null,{},[]],"a":{"\n":"é"},"c":18446744073709551615,)"
      R"("d":-123456789012345678901234567890})";
  EXPECT_EQ(Parse(text).Dump(), text);
}

std::string Describe(const JsonMismatch& mismatch) {
  return std::string("wants ") + std::string(mismatch.expected) + mismatch.range +
         (mismatch.got == nullptr ? ", absent" : ", got " + mismatch.got->ToString()) +
         (mismatch.right_type ? ", beyond" : "");
}

TEST(JsonReader, NamesThePathOfTheFirstError) {
  const std::pair<void (*)(const JsonReader&), const char*> cases[] = {
      {[](const JsonReader& r) { r.Int("a"); },
       "f: a: wants an integer from 1 to 1073741824, got \"x\""},
      {[](const JsonReader& r) { r["list"][1]["b"].Bool(); },
       "f: list[1].b: wants true or false, absent"},
      {[](const JsonReader& r) { r["list"][0].Int(5, 6); },
       "f: list[0]: wants an integer from 5 to 6, got 7, beyond"},
      {[](const JsonReader& r) { r["list"].Int32s(); },
       "f: list[1]: wants an integer from -2147483648 to 2147483647, got {}"},
      {[](const JsonReader& r) { r["huge"].Float(); },
       "f: huge: wants a number, got 1e+300, beyond"},
      {[](const JsonReader& r) { r["list"].ForEach(1, [](const JsonReader&) {}); },
       "f: list: has more than 1 entries"},
      {[](const JsonReader& r) {
         r.Only({"list", "huge"});
       },
       "f: : \"a\" is not supported"},
  };
  const JsonValue value = Parse(R"({"a": "x", "list": [7, {}], "huge": 1e300, "none": null})");
  for (const auto& [read, message] : cases) {
    const JsonReader reader(value, "f: ", Describe, JsonReader::Track::kNone);
    read(reader);
    reader.Fail("b", "a later error");
    EXPECT_EQ(reader.status().message(), message);
    EXPECT_TRUE(reader.uses().empty());
  }
}

TEST(JsonReader, NamesWhatWasNotRead) {
  const JsonValue value = Parse(R"({"z": 1, "b": {"c": 1}, "a": 2, "none": null})");
  const JsonReader reader(value, "", Describe, JsonReader::Track::kOutermost);
  EXPECT_EQ(reader["b"]["c"].Int(0, 9), 1);
  EXPECT_EQ(reader.IntOr("absent", 4), 4);
  EXPECT_EQ(reader.StringOr("none", "d"), "d");
  EXPECT_THAT(reader.Unread(), ElementsAre("a", "z"));
  EXPECT_TRUE(reader.ok());
}

}  // namespace
}  // namespace tokamak
