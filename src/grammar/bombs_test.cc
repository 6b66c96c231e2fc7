// Inputs that would take exponential time or memory if they were expanded: each is refused, or
// compiles and runs within its bounds. The bound is on work and memory, not on wall time.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

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
  Matcher matcher(Compiled(Spec(Kind::kJsonSchema, "true")), vocabulary);
  std::vector<uint32_t> mask(8);
  for (int i = 0; i < 20000; ++i) {
    if (!matcher.AcceptBytes(i % 2 == 0 ? "[" : "{\"a\":")) break;
    if (i % 1000 != 0) continue;
    EXPECT_TRUE(matcher.FillMask(mask).ok());
  }
}

}  // namespace
}  // namespace tokamak::grammar
