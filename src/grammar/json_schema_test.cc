#include "grammar/json_schema.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json/json_value.h"
#include "grammar/testing/check_masks.h"

namespace tokamak::grammar {
namespace {

struct Case {
  const char* schema;
  std::vector<const char*> accepted;
  std::vector<const char*> rejected;
};

void Check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const auto grammar = Compiled(Spec(GrammarSpec::Kind::kJsonSchema, c.schema));
    if (grammar == nullptr) continue;
    for (const char* text : c.accepted)
      EXPECT_TRUE(Matches(grammar, text)) << c.schema << "\n" << text;
    for (const char* text : c.rejected) {
      EXPECT_FALSE(Matches(grammar, text)) << c.schema << "\n" << text;
    }
  }
}

TEST(JsonSchema, Types) {
  Check({
      {"true",
       {"null", "true", "-1.5e+10", "\"a\"", "[]", "[1, [2]]", "{\"a\": {}}"},
       {"", "nul", "[1,]", "01"}},
      {"{\"type\": \"integer\"}",
       {"0", "-12", "123456789012345678901234567890"},
       {"1.5", "01", "+1", "1e3"}},
      {"{\"type\": \"number\"}", {"0", "-0.5", "1e10", "1.25E-7"}, {".5", "1.", "--1", "NaN"}},
      {"{\"type\": [\"string\", \"null\"]}", {"null", "\"x\""}, {"1", "true"}},
      {"{\"type\": \"boolean\"}", {"true", "false"}, {"null", "\"true\""}},
      {"{\"const\": 123456789012345678901234567890}",
       {"123456789012345678901234567890"},
       {"1.2345678901234568e+29", "123456789012345678901234567891"}},
      {"{\"const\": \"a\\\"b\"}", {"\"a\\\"b\""}, {"\"ab\""}},
      {"{\"enum\": [1, \"two\", null, [3, {\"a\": 4}], 2.5]}",
       {"1", "1.0", "\"two\"", "null", "[3, {\"a\": 4}]", "[3,{\"a\":4}]", "2.5"},
       {"2", "two", "[3]", "1.00"}},
      {"{\"enum\": [1, \"two\", 30, null], \"type\": \"integer\", \"minimum\": 5}",
       {"30"},
       {"1", "\"two\"", "null"}},
      {"{\"not\": {\"type\": \"object\"}, \"type\": [\"object\", \"string\"]}", {"\"a\""}, {"{}"}},
      {"{\"type\": \"string\", \"not\": {\"enum\": [\"no\", \"é\"]}}",
       {"\"yes\"", "\"n\"", "\"noo\""},
       {"\"no\"", "\"é\"", "\"\\u00e9\"", "\"\\u00E9\""}},
  });
}

TEST(JsonSchema, Strings) {
  Check({
      {"{\"type\": \"string\"}",
       {"\"\"", "\"é\\u00e9\\ud83d\\ude00 \\/ \\n\"", "\"\xF0\x9F\x98\x80\""},
       {"\"\\ud83d\"", "\"\n\"", "\"\\x\"", "\"\xff\"", "\"a"}},
      {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
       {"\"ab\"", "\"日本語\"", "\"\\ud83d\\ude00\\u00e9\"", "\"\\n\\n\""},
       {"\"a\"", "\"abcd\"", "\"日\""}},
      {"{\"type\": \"string\", \"pattern\": \"^[a-z]+$\"}",
       {"\"abc\""},
       {"\"\"", "\"aB\"", "\"\\u0061\""}},
      {"{\"type\": \"string\", \"pattern\": \"(^abc$){1}\"}", {"\"abc\""}, {"\"\"", "\"x\""}},
      {"{\"type\": \"string\", \"pattern\": \"b+\"}",
       {"\"b\"", "\"abbc\"", "\"\\n\\u00e9b\""},
       {"\"\"", "\"ac\""}},
      {"{\"type\": \"string\", \"pattern\": \"^\\\\S+$\", \"minLength\": 3, \"maxLength\": 5}",
       {"\"abc\"", "\"a\\\"bc\""},
       {"\"ab\"", "\"a b\"", "\"abcdef\""}},
      {"{\"type\": \"string\", \"pattern\": \"a\", \"allOf\": [{\"pattern\": \"b\"}]}",
       {"\"ab\"", "\"xbya\""},
       {"\"a\"", "\"b\""}},
      {"{\"type\": \"string\", \"format\": \"date\"}",
       {"\"2024-02-29\"", "\"2023-12-31\"", "\"2000-02-29\""},
       {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\"", "\"2024-13-01\"", "\"0000-01-01\""}},
      {"{\"type\": \"string\", \"format\": \"date-time\"}",
       {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.123+05:30\""},
       {"\"2024-02-29 23:59:59Z\"", "\"2024-01-01T24:00:00Z\"", "\"2024-01-01T23:59:60Z\""}},
      {"{\"type\": \"string\", \"format\": \"uuid\"}",
       {"\"123e4567-e89b-12d3-a456-426614174000\""},
       {"\"123e4567e89b12d3a456426614174000\""}},
      {"{\"type\": \"string\", \"format\": \"ipv4\"}",
       {"\"127.0.0.1\"", "\"255.255.255.255\""},
       {"\"256.1.1.1\"", "\"1.1.1\"", "\"01.1.1.1\""}},
      {"{\"type\": \"string\", \"format\": \"ipv6\"}",
       {"\"::\"", "\"::1\"", "\"2001:db8::ff00:42:8329\"", "\"1:2:3:4:5:6:7:8\"",
        "\"1:2:3:4:5:6:7::\"", "\"::ffff:1.2.3.4\"", "\"1::8\""},
       {"\"1:2:3:4:5:6:7\"", "\"1::2::3\"", "\"12345::\"", "\"1:2:3:4:5:6:7:8:9\"",
        "\"1:2:3:4:5:6:7:8::\""}},
      {"{\"type\": \"string\", \"format\": \"email\"}",
       {"\"a.b+c@d-e.org\""},
       {"\"a@\"", "\"@b.c\"", "\"a..b@c.d\""}},
      {"{\"type\": \"string\", \"format\": \"uri\"}",
       {"\"https://a.b:80/c?d=e#f\"", "\"mailto:a@b.c\"", "\"urn:x:y\""},
       {"\"//a\"", "\"a b:c\"", "\"http://a b\""}},
      {"{\"type\": \"string\", \"format\": \"my-own\"}", {"\"anything\""}, {"1"}},
  });
}

TEST(JsonSchema, HostNamesAreLimitedAsAWhole) {
  const auto grammar =
      Compiled(Spec(GrammarSpec::Kind::kJsonSchema, R"({"type": "string", "format": "hostname"})"));
  std::string name = "a";
  while (name.size() < 253) name += ".b";
  EXPECT_TRUE(Matches(grammar, "\"" + name + "\""));
  EXPECT_FALSE(Matches(grammar, "\"a" + name + "\""));
}

// Forced calls of functions are read again, so what a grammar accepts the parser must read.
TEST(JsonSchema, AnswersCanBeParsed) {
  const std::string nines(308, '9');
  const std::vector<std::string> accepted = {
      "1e299", "999999999.99E+299", "-1.5e-07",  "0e0",
      nines,   nines + ".99",       "-" + nines, std::string(60, '[') + std::string(60, ']')};
  const std::vector<std::string> rejected = {"1e300",     "1e400",      "1234567890e1",
                                             nines + "9", nines + "e1", std::string(100, '[')};
  for (const char* schema : {"true", "{\"title\": \"any\"}"}) {
    const auto grammar = Compiled(Spec(GrammarSpec::Kind::kJsonSchema, schema));
    for (const std::string& text : accepted) {
      EXPECT_TRUE(Matches(grammar, text)) << text;
      EXPECT_TRUE(JsonValue::Parse(text, {})) << text;
    }
    for (const std::string& text : rejected) EXPECT_FALSE(Matches(grammar, text)) << text;
  }
  const auto object = Compiled(Spec(GrammarSpec::Kind::kJsonObject, ""));
  for (int levels = 1; levels < 120; ++levels) {
    std::string text = "1";
    for (int i = 0; i < levels; ++i) text = "{\"a\": " + text + "}";
    const bool matches = Matches(object, text);
    EXPECT_TRUE(matches || levels > 60) << levels;
    EXPECT_TRUE(!matches || JsonValue::Parse(text, {})) << levels;
  }
  const auto positive =
      Compiled(Spec(GrammarSpec::Kind::kJsonSchema, "{\"type\": \"number\", \"minimum\": 0}"));
  EXPECT_TRUE(Matches(positive, nines));
  EXPECT_FALSE(Matches(positive, nines + "9.5"));
}

TEST(JsonSchema, Numbers) {
  Check({
      {"{\"type\": \"integer\", \"minimum\": -12, \"maximum\": 305}",
       {"-12", "-9", "0", "7", "99", "305", "300", "-1"},
       {"-13", "-20", "306", "310", "1000", "-0", "1.0"}},
      {"{\"type\": \"integer\", \"exclusiveMinimum\": 9}",
       {"10", "100", "19"},
       {"9", "8", "-10", "0"}},
      {"{\"type\": \"integer\", \"maximum\": -5}", {"-5", "-50"}, {"-4", "5", "0"}},
      {"{\"type\": \"number\", \"minimum\": 0.5, \"maximum\": 2.25}",
       {"0.5", "0.50", "1", "2.25", "2.2499", "2", "2.250"},
       {"0.49", "0", "2.26", "2.2501", "3", "-1"}},
      {"{\"type\": \"number\", \"exclusiveMinimum\": 0, \"exclusiveMaximum\": 1}",
       {"0.1", "0.999", "0.0001"},
       {"0", "0.0", "1", "1.0", "1.1", "-0.5"}},
      {"{\"type\": \"number\", \"exclusiveMaximum\": -1.5}",
       {"-1.6", "-1.51", "-2"},
       {"-1.5", "-1.50", "-1", "0", "2"}},
      {"{\"type\": \"number\", \"minimum\": 0, \"exclusiveMinimum\": true}",
       {"0.1", "5"},
       {"0", "-1"}},
      {"{\"type\": \"integer\", \"multipleOf\": 7}", {"0", "7", "-14", "700"}, {"1", "6", "15"}},
      {"{\"type\": \"number\", \"multipleOf\": 0.01, \"minimum\": 0}",
       {"0.25", "3", "3.1"},
       {"0.255", "-1"}},
      {"{\"type\": \"integer\", \"multipleOf\": 100}", {"0", "100", "-2500"}, {"10", "150"}},
      {"{\"type\": \"number\", \"minimum\": 1e-7, \"maximum\": 1e21}",
       {"0.0000001", "1000000000000000000000"},
       {"0.00000009", "1000000000000000000001"}},
  });
}

TEST(JsonSchema, Objects) {
  Check({
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {}, "c": {"type": "null"}},
          "required": ["b"], "additionalProperties": false})",
       {R"({"b": 1})", R"({"a": 1, "b": []})", R"({"a":1,"b":2,"c":null})", "{\n  \"b\": 1\n}",
        R"({"b": 1, "c": null})"},
       {"{}", R"({"a": 1})", R"({"b": 1, "a": 1})", R"({"b": 1, "d": 1})", R"({"b" : 1})",
        R"({"b": 1,})"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}}})",
       {"{}", R"({"a": 1})", R"({"x": "y", "z": 1})", R"({"a": 1, "x": 2})", R"({"aa": "s"})"},
       {R"({"a": "s"})", R"({"x": 1, "a": 1})", R"({"\u0061": "s"})"}},
      {R"({"type": "object", "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"x": 1, "y": 2})"},
       {R"({"x": "a"})"}},
      {R"({"type": "object", "patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 5}}, "additionalProperties": false})",
       {"{}", R"({"x": 1})", R"({"xy": 7})", R"({"ay": 5})", R"({"ay": "s"})"},
       {R"({"xy": 1})", R"({"x": "s"})", R"({"z": 1})"}},
      {R"({"type": "object", "properties": {"xa": {"minimum": 3}}, "patternProperties": {"^x": {"type": "integer"}}})",
       {R"({"xa": 4})", R"({"xb": 1})", R"({"c": "s"})"},
       {R"({"xa": 2})", R"({"xa": "s"})", R"({"xb": "s"})"}},
      {R"({"type": "object", "required": ["q"], "properties": {"a": {"type": "null"}}})",
       {R"({"q": 1})", R"({"a": null, "q": 2, "r": 3})"},
       {"{}", R"({"a": null})"}},
      {R"({"type": "object", "propertyNames": {"pattern": "^[a-c]+$", "maxLength": 2}, "properties": {"abc": {}, "a": {"type": "null"}}})",
       {"{}", R"({"a": null})", R"({"bc": 1})"},
       {R"({"abc": 1})", R"({"d": 1})", R"({"a": 1})"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}},
          "additionalProperties": false, "minProperties": 2, "maxProperties": 2})",
       {R"({"a": null, "b": null})", R"({"a": null, "c": null})", R"({"b": null, "c": null})"},
       {"{}", R"({"a": null})", R"({"a": null, "b": null, "c": null})"}},
      {R"({"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "null"}})",
       {R"({"a": null})", R"({"a": null, "b": null})"},
       {"{}", R"({"a": null, "b": null, "c": null})"}},
      {R"({"type": "object", "properties": {"a": false, "b": {"type": "null"}}, "additionalProperties": false})",
       {"{}", R"({"b": null})"},
       {R"({"a": 1})"}},
  });
}

TEST(JsonSchema, Arrays) {
  Check({
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
       {"[1]", "[1, 2]", "[1,2,3]", "[\n  1,\n  2\n]"},
       {"[]", "[1, 2, 3, 4]", "[\"a\"]"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false})",
       {"[]", "[1]", "[1, \"a\"]"},
       {"[\"a\"]", "[1, \"a\", 2]"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "null"}, "minItems": 2, "maxItems": 4})",
       {"[1, \"a\"]", "[1, \"a\", null, null]"},
       {"[1]", "[1, \"a\", 2]", "[1, \"a\", null, null, null]"}},
      {R"({"type": "array", "items": [{"type": "integer"}], "additionalItems": false, "minItems": 1})",
       {"[1]"},
       {"[]", "[1, 2]"}},
      {R"({"type": "array", "minItems": 3})", {"[1, 2, 3]", "[1, 2, 3, 4]"}, {"[]", "[1, 2]"}},
      {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}},
      {R"({"type": "array", "maxItems": 1, "uniqueItems": true})", {"[]", "[1]"}, {"[1, 1]"}},
      {R"({"type": "array", "items": {"type": "integer"}, "allOf": [{"items": {"minimum": 3}}]})",
       {"[3]"},
       {"[2]"}},
  });
}

TEST(JsonSchema, Combinations) {
  Check({
      {R"({"$defs": {"node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
          "required": ["next"], "additionalProperties": false}}, "$ref": "#/$defs/node"})",
       {R"({"next": null})", R"({"next": {"next": {"next": null}}})"},
       {"null", "{}", R"({"next": 1})"}},
      {R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[], [[]]]"}, {"[1]"}},
      {R"({"anyOf": [{"type": "integer", "minimum": 5}, {"type": "string"}], "type": ["integer", "string", "null"]})",
       {"5", "\"a\""},
       {"4", "null"}},
      {R"({"oneOf": [{"properties": {"k": {"const": "a"}, "v": {"type": "integer"}}, "required": ["k"]},
                     {"properties": {"k": {"const": "b"}, "v": {"type": "string"}}, "required": ["k"]}], "type": "object"})",
       {R"({"k": "a", "v": 1})", R"({"k": "b", "v": "s"})"},
       {R"({"k": "a", "v": "s"})", R"({"k": "c"})"}},
      {R"({"allOf": [{"properties": {"a": {"minimum": 1}}}, {"properties": {"a": {"maximum": 3}, "b": {"type": "null"}}}],
          "properties": {"a": {"type": "integer"}}, "type": "object", "required": ["a"]})",
       {R"({"a": 2})", R"({"a": 3, "b": null})"},
       {R"({"a": 0})", R"({"a": 4})", R"({"b": null})"}},
      {R"({"$ref": "#/definitions/s", "maxLength": 2, "definitions": {"s": {"type": "string", "minLength": 1}}})",
       {"\"a\"", "\"ab\""},
       {"\"\"", "\"abc\"", "1"}},
      {R"({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/s", "maxLength": 2, "definitions": {"s": {"type": "string"}}})",
       {"\"abc\""},
       {"1"}},
      {R"({"anyOf": [{"anyOf": [{"const": 1}, {"const": 2}]}, {"const": 3}], "allOf": [{"anyOf": [{"minimum": 2}, {"type": "string"}]}]})",
       {"2", "3"},
       {"1", "4"}},
      {R"({"type": "object", "title": "T", "description": "d", "default": {}, "examples": [], "x-extra": 1, "deprecated": true})",
       {"{}"},
       {"1"}},
      {R"({"$anchor": "top", "type": "array", "items": {"$ref": "#top"}})", {"[[]]"}, {"[1]"}},
      {R"({"type": "object", "unevaluatedProperties": true, "dependentRequired": {}})",
       {R"({"a": 1})"},
       {"1"}},
      // Data may look like a schema, but is none.
      {R"({"$ref": "#/$defs/A", "$defs": {"A": {"type": "integer"}}, "examples": [{"id": "#/$defs/A"}]})",
       {"1"},
       {"\"x\""}},
      {R"({"properties": {"id": {"type": "string"}, "a": {"id": "#/$defs/A"}, "b": {"$ref": "#/$defs/A"}},
          "$defs": {"A": {"type": "integer"}}, "type": "object"})",
       {R"({"b": 1})"},
       {R"({"b": "x"})"}},
      {R"({"$ref": "#A", "examples": [{"$anchor": "A"}], "$defs": {"x": {"$anchor": "A", "type": "integer"}},
          "default": {"$anchor": "A"}, "allOf": [{"enum": [{"$anchor": "A"}, 5]}]})",
       {"5"},
       {"\"x\"", R"({"$anchor": "A"})"}},
      {R"({"$ref": "#A", "properties": {"default": {"$anchor": "A", "type": "integer"}}})",
       {"1"},
       {"\"x\""}},
  });
}

TEST(JsonSchema, RefusesWhatItCannotGuaranteeByItsPath) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"properties": {"a": {"not": {"minimum": 3}}}})", "$.properties.a.not: is not supported"},
      {R"({"items": {"contains": {"type": "integer"}}})", "$.items.contains: is not supported"},
      {R"({"type": "array", "uniqueItems": true})", "$.uniqueItems: is not supported"},
      {R"({"type": "array", "contains": {}})", "$.contains: is not supported"},
      {R"({"if": true, "then": {"required": ["a"]}})", "$.if: is not supported"},
      {R"({"properties": {"a": {"required": true}}})", "$.properties.a.required: must be"},
      {R"({"type": "integer", "minimum": true})", "$.minimum: must be a number"},
      {R"({"type": "integer", "multipleOf": true})", "$.multipleOf: must be a number"},
      {R"({"$ref": "#/anyOf/x", "anyOf": [{}, {}]})", "does not exist"},
      {R"({"if": {"type": "string"}, "then": {"minLength": 1}})", "$.if: is not supported"},
      {R"({"oneOf": [{"type": "integer"}, {"minimum": 3}]})", "$.oneOf: alternatives 0 and 1"},
      {R"({"$ref": "https://example.com/x.json"})",
       "$.$ref: \"https://example.com/x.json\" is not within"},
      {R"({"$ref": "#/$defs/x"})", "does not exist"},
      {R"({"type": "string", "pattern": "a(?=b|c) "})",
       "$.pattern: regular expression, character 2"},
      {R"({"type": "string", "format": "idn-email"})", "$.format: the format \"idn-email\""},
      {R"({"type": "strin"})", "$.type: \"strin\" is not a type"},
      {R"({"$ref": "#"})", "refers to itself"},
      {R"({"anyOf": [{"$ref": "#"}, {"type": "string"}]})", "refers to the list"},
      {R"({"type": "string", "minLength": 3, "maxLength": 2})", "no text fits"},
      {R"({"type": "string", "pattern": "^a$", "minLength": 2})", "no text fits"},
      {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
       "no text fits"},
      {R"({"type": "integer", "multipleOf": 7, "minimum": 1})", "$.multipleOf"},
      {R"({"type": "object", "minProperties": 3})", "$.minProperties"},
      {"{", "the schema is not JSON (byte 2)"},
      {"{\"minimum\": 1e400}", "the schema has a number that exceeds a double (byte 17)"},
      {"3", "$: a schema must be"},
  };
  for (const auto& [schema, message] : cases) {
    const auto grammar = CompileGrammar(Spec(GrammarSpec::Kind::kJsonSchema, schema));
    ASSERT_FALSE(grammar.ok()) << schema;
    EXPECT_NE(grammar.status().message().find(message), std::string_view::npos)
        << schema << ": " << grammar.status().message();
  }
}

TEST(JsonSchema, SaysWhichLimitOfJsonASchemaExceeds) {
  const auto message = [](const std::string& schema) {
    const auto grammar = CompileGrammar(Spec(GrammarSpec::Kind::kJsonSchema, schema));
    return std::string(grammar.status().message());
  };
  EXPECT_EQ(message(std::string(101, '[')),
            "the schema has more than 100 levels of objects and arrays");
  EXPECT_EQ(message(std::string((4 << 20) + 1, ' ')), "the schema is longer than 4 MiB");
  std::string name;
  while (name.size() < 100000) name += "é";
  EXPECT_EQ(message("{\"properties\": {\"" + name + "\": 1}}"),
            "$.properties." + name.substr(0, 286) + "...: a schema must be an object or a boolean");
}

TEST(JsonSchema, RefusesPatternsThatTakeTooMuchWork) {
  std::string name;
  for (int i = 0; i < 1000; ++i) name += i % 3 == 0 ? 'a' : 'b';
  const auto grammar = CompileGrammar(
      Spec(GrammarSpec::Kind::kJsonSchema, "{\"type\": \"object\", \"properties\": {\"" + name +
                                               "\": {}}, \"patternProperties\": "
                                               "{\"^[ab]*a[ab]{900}$\": false}}"));
  ASSERT_FALSE(grammar.ok());  // the pattern matches, so the property is forbidden
  EXPECT_EQ(grammar.status().message(),
            "$.patternProperties.^[ab]*a[ab]{900}$: it takes too much work to match this pattern "
            "with names");
}

TEST(JsonSchema, WhiteSpaceIsAChoice) {
  GrammarSpec spec =
      Spec(GrammarSpec::Kind::kJsonSchema, R"({"type": "object", "required": ["a"]})");
  EXPECT_TRUE(Matches(Compiled(spec), "{\n\t\"a\": [\n\t\t1\n\t]\n}"));
  EXPECT_FALSE(Matches(Compiled(spec), R"({  "a": 1})"));
  EXPECT_FALSE(Matches(Compiled(spec), R"( {"a": 1})"));
  spec.whitespace = GrammarSpec::Whitespace::kNone;
  EXPECT_TRUE(Matches(Compiled(spec), R"({"a":[1,2]})"));
  EXPECT_FALSE(Matches(Compiled(spec), R"({"a": 1})"));
  spec.whitespace = GrammarSpec::Whitespace::kPattern;
  spec.whitespace_pattern = "[ \\n]{0,2}";
  EXPECT_TRUE(Matches(Compiled(spec), R"({  "a" : 1 })"));
  EXPECT_FALSE(Matches(Compiled(spec), R"({   "a": 1})"));
  EXPECT_TRUE(Matches(Compiled(spec), "{\"a\":[ \n]}"));
  EXPECT_TRUE(Matches(Compiled(spec), "{\"a\":{ }}"));
  spec.whitespace_pattern = "[ab]?";
  EXPECT_FALSE(Matches(Compiled(spec), R"({a"a":1})"));
}

TEST(JsonSchema, MasksAreExact) {
  const std::vector<std::string> tokens =
      BytesAnd({"{\"", "\":",  " \"",  "\", \"", "\"}",  "name", "{\"name\":", "\": \"", "a\"",
                "]}",  "[]",   "12",   ", ",     "true", "tr",   "ue}",        "\\u00",  "\\n",
                "é",   "\xC3", "日本", "null",   "}",    " {",   "\n  \"",     "age",    "}}"});
  const auto grammar = Compiled(
      Spec(GrammarSpec::Kind::kJsonSchema,
           R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
          "age": {"type": "integer", "minimum": 0, "maximum": 150}, "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}},
          "child": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["name"]})"));
  const std::string text =
      R"({"name": "日本 a\n", "age": 12, "tags": ["ab", "c"], "child": {"name": "x", "more": {"é": [true]}}})";
  for (size_t size = 0; size <= text.size(); ++size)
    CheckMask(grammar, tokens, text.substr(0, size));
}

}  // namespace
}  // namespace tokamak::grammar
