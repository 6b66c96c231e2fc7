#include "weights/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weights/config_reader.h"

namespace tokamak {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

JsonValue Parse(const std::string& text) {
  Result<JsonValue> value = ParseConfigJson(text, "config.json");
  EXPECT_TRUE(value.ok()) << value.status().ToString();
  return value.ok() ? *value : JsonValue(JsonValue::Object());
}

TEST(ParseConfigJson, KeepsTypesAndOrder) {
  const JsonValue value =
      Parse(R"({"b": true, "i": -3, "d": 1e-05, "s": "x\n\u00e9", "a": [1, 2.0], "n": null})");
  EXPECT_EQ(value.Find("b")->AsBool(), true);
  EXPECT_EQ(value.Find("i")->AsInt(), -3);
  EXPECT_EQ(value.Find("i")->AsDouble(), std::nullopt);
  EXPECT_EQ(value.Find("d")->AsDouble(), 1e-5);
  EXPECT_EQ(*value.Find("s")->AsString(), "x\n\u00e9");
  EXPECT_EQ(value.Find("a")->AsArray()->size(), 2u);
  EXPECT_TRUE(value.Find("n")->is_null());
  EXPECT_EQ(value.Find("absent"), nullptr);
  EXPECT_EQ(value.ToString(200),
            "{\"b\": true, \"i\": -3, \"d\": 1e-05, \"s\": \"x\\n\u00e9\", \"a\": [1, 2], "
            "\"n\": null}");
}

TEST(ParseConfigJson, RefusesEverythingButOneObject) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "malformed JSON"},
      {"{", "malformed JSON"},
      {"{\"a\": 1,}", "at byte 9"},
      {"[1]", "must be a JSON object"},
      {"{} {}", "malformed JSON"},
      {"{\"a\": NaN}", "malformed JSON"},
      {"{\"a\": 1e999}", "malformed JSON"},
      {"{\"a\": 1, \"a\": 2}", "\"a\" appears twice"},
      {std::string("{\"a\": \"\xff\"}"), "malformed JSON"},
      {"{\"a\": " + std::string(100, '[') + std::string(100, ']') + "}", "nested more than 32"},
      {std::string((16 << 20) + 1, ' '), "at most 16777216"},
  };
  for (const auto& [text, message] : cases) {
    const Result<JsonValue> value = ParseConfigJson(text, "config.json");
    ASSERT_FALSE(value.ok()) << text.substr(0, 100);
    EXPECT_THAT(value.status().ToString(), AllOf(HasSubstr("config.json: "), HasSubstr(message)));
  }
}

TEST(ConfigReader, ReadsFields) {
  const JsonValue config = Parse(
      R"({"size": 64, "theta": 10000, "tie": true, "act": "silu", "sizes": [1, 2], "f": [0.5],
          "types": ["a", "b"], "scaling": {"factor": 2.0}, "architectures": ["X"], "unset": null})");
  ConfigReader reader(config, "config.json");
  EXPECT_EQ(reader.Int("size"), 64);
  EXPECT_EQ(reader.Number("theta"), 10000.0);
  EXPECT_TRUE(reader.Bool("tie"));
  EXPECT_THAT(reader.Ints("sizes"), ElementsAre(1, 2));
  EXPECT_THAT(reader.Numbers("f"), ElementsAre(0.5));
  EXPECT_THAT(reader.Strings("types"), ElementsAre("a", "b"));
  EXPECT_EQ(reader.IntOr("absent", 5), 5);
  EXPECT_EQ(reader.NumberOr("unset", 0.25), 0.25);
  EXPECT_TRUE(reader.BoolOr("absent", true));
  EXPECT_EQ(reader.StringOr("absent", "d"), "d");
  EXPECT_FALSE(reader.Has("unset"));
  reader.Expect("act", "silu");
  reader.ExpectOrAbsent("absent", 1);
  reader.ExpectOrAbsent("theta", 10000.0);
  EXPECT_EQ(reader.Object("scaling").Number("factor"), 2.0);
  const Result<int> done = reader.Finish(7);
  ASSERT_TRUE(done.ok()) << done.status().ToString();
  EXPECT_EQ(*done, 7);
}

struct Misread {
  const char* name;
  const char* json;
  void (*read)(ConfigReader&);
  const char* message;
};
const Misread kMisreads[] = {
    {"Missing", "{}", [](ConfigReader& r) { r.Int("size"); }, "config.json: size: is missing"},
    {"Null", R"({"size": null})", [](ConfigReader& r) { r.Int("size"); }, "size: is missing"},
    {"TextForInt", R"({"size": "64"})", [](ConfigReader& r) { r.Int("size"); },
     "size: expected an integer from 1 to 1073741824, got \"64\""},
    {"FractionForInt", R"({"size": 1.5})", [](ConfigReader& r) { r.Int("size"); }, "got 1.5"},
    {"Zero", R"({"size": 0})", [](ConfigReader& r) { r.Int("size"); }, "got 0"},
    {"Huge", R"({"size": 9000000000})", [](ConfigReader& r) { r.Int("size"); }, "got 9000000000"},
    {"OptionalOutOfRange", R"({"size": -1})", [](ConfigReader& r) { r.IntOr("size", 3); },
     "got -1"},
    {"TextForNumber", R"({"eps": "1e-5"})", [](ConfigReader& r) { r.Number("eps"); },
     "eps: expected a number, got \"1e-5\""},
    {"NegativeNumber", R"({"eps": -1})", [](ConfigReader& r) { r.Number("eps"); }, "got -1"},
    {"IntForBool", R"({"tie": 1})", [](ConfigReader& r) { r.Bool("tie"); },
     "tie: expected true or false, got 1"},
    {"BoolForText", R"({"act": true})", [](ConfigReader& r) { r.String("act"); },
     "act: expected a string, got true"},
    {"ScalarForArray", R"({"sizes": 1})", [](ConfigReader& r) { r.Ints("sizes"); },
     "sizes: expected an array of integers, got 1"},
    {"ElementOfArray", R"({"sizes": [1, "x"]})", [](ConfigReader& r) { r.Ints("sizes"); },
     "sizes[1]: expected an integer"},
    {"ScalarForObject", R"({"scaling": 2})",
     [](ConfigReader& r) { r.Object("scaling").Number("factor"); },
     "scaling: expected an object, got 2"},
    {"MissingInObject", R"({"scaling": {}})",
     [](ConfigReader& r) { r.Object("scaling").Number("factor"); }, "scaling.factor: is missing"},
    {"OtherValue", R"({"act": "gelu"})", [](ConfigReader& r) { r.Expect("act", "silu"); },
     "act: is \"gelu\", but this architecture is implemented only for \"silu\""},
    {"OtherOptionalValue", R"({"tp": 2})", [](ConfigReader& r) { r.ExpectOrAbsent("tp", 1); },
     "tp: is 2"},
    {"Unread", R"({"window": 4096})", [](ConfigReader&) {}, "window (4096)"},
    {"UnreadInObject", R"({"scaling": {"factor": 2, "beta": 3}})",
     [](ConfigReader& r) { r.Object("scaling").Number("factor"); }, "scaling.beta (3)"},
    {"UnreadObject", R"({"scaling": {"factor": 2}})", [](ConfigReader& r) { r.Object("scaling"); },
     "scaling.factor (2)"},
    {"OwnError", "{}", [](ConfigReader& r) { r.Fail("head_dim", "must be even"); },
     "config.json: head_dim: must be even"},
};

class ConfigReaderErrorTest : public testing::TestWithParam<Misread> {};
INSTANTIATE_TEST_SUITE_P(Fields, ConfigReaderErrorTest, testing::ValuesIn(kMisreads),
                         [](const auto& info) { return info.param.name; });

TEST_P(ConfigReaderErrorTest, NamesTheField) {
  const JsonValue config = Parse(GetParam().json);
  ConfigReader reader(config, "config.json");
  GetParam().read(reader);
  EXPECT_THAT(reader.Finish().ToString(), HasSubstr(GetParam().message));
}

TEST(ConfigReader, FirstErrorStaysAndReadingGoesOnWithinBounds) {
  const JsonValue config = Parse(R"({"heads": 0})");
  ConfigReader reader(config, "config.json");
  EXPECT_EQ(reader.Int("heads"), 1);
  EXPECT_EQ(reader.Int("missing", {5, 9}), 5);
  EXPECT_FALSE(reader.ok());
  EXPECT_THAT(reader.Finish().ToString(), AllOf(HasSubstr("heads"), Not(HasSubstr("missing"))));
}

TEST(ConfigReader, RecordsHowFieldsWereUsed) {
  using Use = ConfigReader::Use;
  const JsonValue config = Parse(R"({"a": 1, "b": "x", "o": {"i": 2}})");
  ConfigReader reader(config, "config.json");
  // A copy notes what it reads in the original.
  const ConfigReader copy = reader;  // NOLINT(performance-unnecessary-copy-initialization)
  copy.Int("a");
  copy.BoolOr("absent", true);
  copy.Expect("b", "x");
  EXPECT_FALSE(copy.Has("c"));
  copy.Ignore({"d"});
  copy.Object("o").Int("i");
  copy.Has("a");
  EXPECT_EQ(reader.uses(), (ConfigReader::Uses{{"a", Use::kRead},
                                               {"absent", Use::kRead},
                                               {"b", Use::kFixed},
                                               {"c", Use::kAsked},
                                               {"d", Use::kIgnored},
                                               {"o", Use::kOpened},
                                               {"o.i", Use::kRead}}));
}

// Has does not count as reading.
TEST(ConfigReader, AFieldThatWasOnlyTestedForIsUnread) {
  const JsonValue config = Parse(R"({"a": 1})");
  ConfigReader reader(config, "config.json");
  EXPECT_TRUE(reader.Has("a"));
  EXPECT_FALSE(reader.Finish().ok());
}

TEST(ConfigReader, IgnoredFieldsAndThoseWithoutEffectNeedNotBeRead) {
  const JsonValue config = Parse(
      R"({"torch_dtype": "bfloat16", "transformers_version": "4", "eos_token_id": [1, 2],
          "extra": {"a": 1}})");
  ConfigReader reader(config, "config.json");
  reader.Ignore({"extra"});
  EXPECT_TRUE(reader.Finish().ok()) << reader.Finish().ToString();
}

// A model's configuration inside another: bookkeeping fields are skipped there too, nothing else.
TEST(ConfigReader, NestedObjectsAreReadAsStrictly) {
  const auto read = [](const std::string& text) {
    const JsonValue config = Parse(R"({"text_config": )" + text + "}");
    ConfigReader reader(config, "config.json");
    ConfigReader part = reader.Part("text_config");
    part.Int("size");
    EXPECT_EQ(part.Finish().ok(), reader.Finish().ok());
    return reader.Finish().ToString();
  };
  EXPECT_EQ(read(R"({"size": 2, "torch_dtype": "bfloat16", "eos_token_id": 1})"), "ok");
  EXPECT_THAT(read(R"({"size": 2, "window": 8})"), HasSubstr("text_config.window (8)"));
  EXPECT_THAT(read(R"({"window": 8})"), HasSubstr("text_config.size: is missing"));
  EXPECT_THAT(read("3"), HasSubstr("text_config: expected an object"));
  // Only at the top level is this field read elsewhere.
  EXPECT_THAT(read(R"({"size": 2, "quantization_config": {}})"),
              HasSubstr("text_config.quantization_config ({})"));
}

TEST(ConfigReader, DefaultsReplaceAbsentAndNullFields) {
  const JsonValue config = Parse(R"({"inner": {"null": null, "there": 3}, "size": 1})");
  ConfigReader reader(config, "config.json");
  ConfigReader inner = reader.Object("inner");
  for (const char* name : {"size", "null", "there"}) inner.SetDefault(name, 8);
  EXPECT_TRUE(inner.Has("size"));
  EXPECT_EQ(inner.Int("size"), 8);
  EXPECT_EQ(inner.IntOr("null", 2), 8);
  EXPECT_EQ(inner.Int("there"), 3);
  EXPECT_EQ(reader.Int("size"), 1);
  EXPECT_TRUE(reader.Finish().ok()) << reader.Finish().ToString();
}

}  // namespace
}  // namespace tokamak
