// Inputs that would take exponential time or memory if they were expanded: each is refused, or
// compiles and runs within its bounds. The bound is on work and memory, not on wall time.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/json/json_value.h"
#include "grammar/json_compiler.h"
#include "grammar/testing/check_masks.h"

namespace tokamak::grammar {
namespace {

using Kind = GrammarSpec::Kind;

std::string Times(int count, const std::function<std::string(int)>& part) {
  std::string result;
  for (int i = 0; i < count; ++i) result += part(i);
  return result;
}
std::string Times(int count, const std::string& part) {
  return Times(count, [&](int) { return part; });
}

// Compiles, and if that works fills a few masks; errors are fine.
void Detonate(Kind kind, const std::string& text) {
  static const auto* const kVocabulary = new std::shared_ptr<const Vocabulary>(
      Vocabulary::Make(BytesAnd({"aa", "aaaa", "aaaaaaaaaaaaaaaa", "ab", "{\"a\":", "[[[[[[[["})));
  const auto grammar = CompileGrammar(Spec(kind, text));
  if (!grammar.ok()) {
    EXPECT_FALSE(grammar.status().message().empty());
    EXPECT_LT(grammar.status().message().size(), 1000u);
    return;
  }
  EXPECT_LT((*grammar)->bytes(), size_t{128} << 20);
  Matcher matcher(*grammar, *kVocabulary);
  std::vector<uint32_t> mask(((*kVocabulary)->size() + 31) / 32);
  for (int i = 0; i < 12; ++i) {
    if (!matcher.FillMask(mask).ok()) return;
    int32_t token = static_cast<int32_t>((*kVocabulary)->size()) - 1;
    while (token >= 0 && (mask[token / 32] >> (token % 32) & 1) == 0) --token;
    if (token < 0 || !matcher.Accept(token)) return;
  }
}

TEST(Bombs, RegularExpressions) {
  for (int n : {2, 3, 5, 10, 30, 99, 101, 1000, 100000}) {
    Detonate(Kind::kRegex, Times(n, "(") + "a" + Times(n, ")"));
    Detonate(Kind::kRegex, Times(n, "(") + "a" + Times(n, ")*"));
    Detonate(Kind::kRegex, Times(n, "(") + "a" + Times(n, "){0,100}"));
    Detonate(Kind::kRegex, Times(n, "(") + "a" + Times(n, "b?){0,1000}"));
    Detonate(Kind::kRegex, Times(n, "(") + "a" + Times(n, "|b){2,9}c"));
    Detonate(Kind::kRegex, Times(n, "a?") + Times(n, "a"));
    Detonate(Kind::kRegex, Times(n, "(a|b)*a"));
    Detonate(Kind::kRegex, Times(n, "(.*a){2}"));
    Detonate(Kind::kRegex, "(a|b)*a(a|b){" + std::to_string(n) + "}");
    Detonate(Kind::kRegex, "(a{1," + std::to_string(n) + "}){1," + std::to_string(n) + "}");
    Detonate(Kind::kRegex, Times(n, "[\\w-é]|"));
    Detonate(Kind::kRegex, Times(n, "\\p{L}"));
    Detonate(Kind::kRegex, Times(n, "["));
    Detonate(Kind::kRegex, Times(n, "x{"));
  }
  Detonate(Kind::kRegex, std::string(1 << 20, 'a'));
  Detonate(Kind::kRegex, std::string(60000, 'a'));
  Detonate(Kind::kRegex, "a{100000}{100000}{100000}");
}

TEST(Bombs, Schemas) {
  for (int n : {5, 20, 60, 150, 1000, 20000}) {
    const auto number = [](int i) { return std::to_string(i); };
    // Each definition has the next one twice.
    Detonate(Kind::kJsonSchema,
             "{\"$ref\": \"#/d/0\", \"d\": {" +
                 Times(n,
                       [&](int i) {
                         return "\"" + number(i) + "\": {\"anyOf\": [{\"$ref\": \"#/d/" +
                                number(i + 1) + "\"}, {\"items\": {\"$ref\": \"#/d/" +
                                number(i + 1) + "\"}}]},";
                       }) +
                 "\"" + number(n) + "\": {}}}");
    Detonate(Kind::kJsonSchema,
             "{\"allOf\": [" + Times(n, "{\"anyOf\": [{\"minLength\": 1}, {\"maxLength\": 5}]},") +
                 "{}]}");
    Detonate(Kind::kJsonSchema, "{\"oneOf\": [" + Times(n, [&](int i) {
                                  return "{\"type\": \"string\", \"pattern\": \"^a{" + number(i) +
                                         "}$\"},";
                                }) + "{\"type\": \"null\"}]}");
    Detonate(Kind::kJsonSchema, "{\"type\": \"string\", \"allOf\": [" + Times(n, [&](int i) {
                                  return "{\"pattern\": \"(a|b)*a(a|b){" + number(i % 50) + "}\"},";
                                }) + "{}]}");
    Detonate(Kind::kJsonSchema, Times(n, "{\"items\": ") + "{}" + Times(n, "}"));
    Detonate(Kind::kJsonSchema, Times(n, "{\"properties\": {\"a\": ") + "{}" + Times(n, "}}"));
    Detonate(Kind::kJsonSchema, Times(n, "{\"anyOf\": [{}, ") + "{}" + Times(n, "]}"));
    Detonate(Kind::kJsonSchema, "{\"properties\": {" + Times(n, [&](int i) {
                                  return "\"p" + number(i) + "\": {\"type\": \"integer\"},";
                                }) + "\"z\": {}}, \"minProperties\": 3, \"maxProperties\": 90}");
    Detonate(Kind::kJsonSchema, "{\"patternProperties\": {" + Times(n, [&](int i) {
                                  return "\"a{" + number(i) + "}b\": {\"minimum\": " + number(i) +
                                         "},";
                                }) + "\"z\": {}}}");
    Detonate(Kind::kJsonSchema, "{\"enum\": [" + Times(n, [&](int i) {
                                  return "\"value" + number(i) + "\",";
                                }) + "1]}");
    Detonate(Kind::kJsonSchema, "{\"prefixItems\": [" + Times(n, "{\"type\": \"array\"},") +
                                    "{}], \"minItems\": 4000000}");
  }
  Detonate(Kind::kJsonSchema,
           "{\"type\": \"string\", \"minLength\": 4000000000, \"pattern\": \"a\"}");
  Detonate(Kind::kJsonSchema, "{\"type\": \"number\", \"minimum\": 1e300, \"maximum\": 1e301}");
  Detonate(Kind::kJsonSchema, "{\"type\": \"integer\", \"multipleOf\": 997}");
  Detonate(Kind::kJsonSchema,
           "{\"type\": \"string\", \"pattern\": \"" + std::string(1 << 20, 'a') + "\"}");
  Detonate(Kind::kJsonSchema, std::string(5 << 20, '['));
}

// Work that compiling a schema takes beside that of its expressions.
uint64_t WorkOf(const std::string& schema, bool compiles) {
  const auto value = JsonValue::Parse(schema, {});
  EXPECT_TRUE(value);
  if (!value) return 0;
  ExprPool pool;
  pool.Allow(500'000);
  const SchemaDocument document(*value);
  JsonCompiler compiler(pool, document, JsonSpace());
  const auto result = compiler.Value({&*value});
  const bool compiled = result.ok() && pool.trouble() == ExprPool::Trouble::kNone;
  EXPECT_EQ(compiled, compiles) << (result.ok() ? "" : result.status().message());
  return compiler.work();
}

std::string Names(int count, const std::string& prefix) {
  return Times(count, [&](int i) { return "\"" + prefix + std::to_string(i) + "\":{},"; });
}

// Each part of the work is counted: more input means more work, until that ends compilation.
TEST(Bombs, SchemasThatAreComparedCountAsWork) {
  using Schema = std::function<std::string(int)>;
  const auto patterns = [](int count, int from) {
    return "{\"patternProperties\": {" +
           Times(count, [&](int i) { return "\"b" + std::to_string(from + i) + "\": {},"; }) +
           "\"c\": {}}}";
  };
  const auto numbers = [](int count, int from) {
    return "{\"enum\": [" + Times(count, [&](int i) { return std::to_string(from + i) + ","; }) +
           "-1]}";
  };
  const Schema names_by_patterns = [&](int n) {
    return "{\"properties\": {" + Names(n, "a") + "\"z\": {}}, \"patternProperties\": {" +
           Names(n, "b") + "\"z\": {}}}";
  };
  const Schema long_pattern = [](int n) {
    return "{\"properties\": {" + Names(n, "a") + "\"z\": {}}, \"patternProperties\": {\"" +
           std::string(static_cast<size_t>(n), 'b') + "\": {}}}";
  };
  const Schema merged_enums = [&](int n) {
    return "{\"allOf\": [" + numbers(n, 0) + "," + numbers(n, n) + "]}";
  };
  const Schema disjoint_enums = [&](int n) {
    return "{\"oneOf\": [" + numbers(n, 0) + ", {\"enum\": [" +
           Times(n, [&](int i) { return std::to_string(n + i) + ","; }) + "-2]}]}";
  };
  const Schema exclusive_strings = [](int n) {
    return "{\"oneOf\": [" +
           Times(n,
                 [&](int i) {
                   return "{\"type\": \"string\", \"pattern\": \"^(a|b)*a(a|b){8}" +
                          std::to_string(i) + "$\"},";
                 }) +
           "{\"type\": \"null\"}]}";
  };
  const Schema required = [](int n) {
    const std::string names =
        Times(n, [](int i) { return "\"" + std::to_string(i) + "\","; }) + "\"z\"";
    return "{\"type\": \"object\", \"oneOf\": [{\"required\": [" + names +
           "]}, {\"properties\": {\"z\": false}}]}";
  };
  const std::vector<std::tuple<const char*, Schema, int, int>> cases = {
      {"names by patterns", names_by_patterns, 20, 20000},
      {"a long pattern", long_pattern, 100, 30000},
      {"enums together", merged_enums, 300, 100000},
      {"enums of oneOf", disjoint_enums, 300, 100000},
      {"strings of oneOf", exclusive_strings, 3, 300},
      {"required names", required, 50, 100000},
  };
  for (const auto& [what, schema, few, many] : cases) {
    SCOPED_TRACE(what);
    EXPECT_GT(WorkOf(schema(few), true), static_cast<uint64_t>(few) * static_cast<uint64_t>(few));
    EXPECT_LT(WorkOf(schema(many), false), JsonCompiler::kMaxWork * 3 / 2);
  }
  // The number of patterns is limited for all schemas of an object together.
  const auto many_objects = [&](int n) {
    return "{\"allOf\": [" + Times(n, [&](int i) { return patterns(98, 98 * i) + ","; }) + "{}]}";
  };
  EXPECT_GT(WorkOf(many_objects(1), true), 0u);
  EXPECT_LT(WorkOf(many_objects(500), false), uint64_t{1'000'000});
}

TEST(Bombs, Gbnf) {
  for (int n : {5, 50, 99, 101, 500, 5000, 20000}) {
    const auto rule = [](int i) { return "r" + std::to_string(i); };
    Detonate(Kind::kGbnf, "root ::= r0\n" +
                              Times(n,
                                    [&](int i) {
                                      return rule(i) + " ::= " + rule(i + 1) + " " + rule(i + 1) +
                                             "\n";
                                    }) +
                              rule(n) + " ::= \"a\"\n");
    Detonate(Kind::kGbnf, "root ::= r0\n" +
                              Times(n,
                                    [&](int i) {
                                      return rule(i) + " ::= " + rule(i + 1) + "? " + rule(i + 1) +
                                             "?\n";
                                    }) +
                              rule(n) + " ::= \"a\"\n");
    Detonate(Kind::kGbnf, "root ::= " + Times(n, "(") + "\"a\"" + Times(n, ")*"));
    Detonate(Kind::kGbnf, "root ::= " + Times(n, "\"a\"? ") + "\"b\"");
    Detonate(Kind::kGbnf, "root ::= " + Times(n, "\"a\" | ") + "\"b\"");
    Detonate(Kind::kGbnf,
             "root ::= \"a\" root root | \"a\" root | \"a\"{1," + std::to_string(n) + "}");
    Detonate(Kind::kGbnf,
             "root ::= \"" + std::string(static_cast<size_t>(n), 'a') + "\" root | \"a\"");
  }
  Detonate(Kind::kGbnf, std::string(1 << 20, 'a'));
}

TEST(Bombs, DeepAnswersStayWithinBounds) {
  const auto vocabulary = Vocabulary::Make(BytesAnd({}));
  const char* const schema =
      R"({"type": ["array", "object"], "items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}})";
  Matcher matcher(Compiled(Spec(Kind::kJsonSchema, schema)), vocabulary);
  std::vector<uint32_t> mask(8);
  for (int i = 0; i < 20000; ++i) {
    ASSERT_TRUE(matcher.AcceptBytes(i % 2 == 0 ? "[" : "{\"a\":"));
    if (i % 1000 != 0) continue;
    EXPECT_TRUE(matcher.FillMask(mask).ok());
  }
}

// Tools of a request are the tags of one grammar.
TEST(Bombs, TagsShareTheBoundOnWork) {
  const auto compiled = [](int count, const std::function<std::string(int)>& schema) {
    GrammarSpec spec;
    spec.kind = Kind::kTags;
    spec.triggers = {"<"};
    for (int i = 0; i < count; ++i) {
      spec.tags.push_back({"<" + std::to_string(i) + ">",
                           std::make_shared<const GrammarSpec>(Spec(Kind::kJsonSchema, schema(i))),
                           "</>"});
    }
    return CompileGrammar(spec).status();
  };
  const auto any = [](int) { return std::string(R"({"type": "object"})"); };
  EXPECT_TRUE(compiled(500, any).ok()) << "equal contents are compiled once";
  const auto exclusive = [](int i) {
    const auto one_of = [](const char* c) {
      return std::string(R"({"type": "string", "pattern": "^[ab]*)") + c + "[ab]{8}$\"}";
    };
    return R"({"oneOf": [)" + one_of("a") + ", " + one_of("b") + "], \"title\": \"" +
           std::to_string(i) + "\"}";
  };
  EXPECT_TRUE(compiled(1, exclusive).ok()) << compiled(1, exclusive).ToString();
  EXPECT_FALSE(compiled(1000, exclusive).ok());
}

}  // namespace
}  // namespace tokamak::grammar
