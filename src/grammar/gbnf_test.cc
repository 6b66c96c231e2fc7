#include "grammar/gbnf.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "grammar/testing/check_masks.h"

namespace tokamak::grammar {
namespace {

std::shared_ptr<const Grammar> Gbnf(std::string_view text) {
  return Compiled(Spec(GrammarSpec::Kind::kGbnf, text));
}

// From llama.cpp's grammars/arithmetic.gbnf.
constexpr std::string_view kArithmetic = R"gbnf(root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
)gbnf";

TEST(Gbnf, ReadsLlamaCppsArithmeticGrammar) {
  const auto grammar = Gbnf(kArithmetic);
  EXPECT_TRUE(Matches(grammar, "x = 10\n"));
  EXPECT_TRUE(Matches(grammar, "a*(b+(2 -c3_)) = 1\n1=2\n"));
  EXPECT_FALSE(Matches(grammar, "x = 10"));
  EXPECT_FALSE(Matches(grammar, "(x = 10\n"));
  EXPECT_FALSE(Matches(grammar, "x + = 10\n"));
  const std::vector<std::string> tokens =
      BytesAnd({"x1", " = ", "))", "((", "10\n", "\n\n", "a+b", "1=2\n3", "=="});
  for (const char* prefix : {"", "x", "x ", "((a", "((a)", "x=", "x= 1", "x=1\n"}) {
    CheckMask(grammar, tokens, prefix);
  }
}

TEST(Gbnf, ReadsSyntax) {
  const std::vector<std::tuple<const char*, const char*, bool>> cases = {
      {"root ::= \"a\" | \"b\" # comment\n", "b", true},
      {"root ::= (\"a\"\n \"b\" |\n \"c\")", "ab", true},
      {"root ::=\n \"a\" |\n \"b\"", "b", true},
      {"root ::= x-y? z_1*\nx-y ::= \"x\"\nz_1 ::= \"z\"", "xzz", true},
      {"root ::= \"a\"{2,3}", "aaa", true},
      {"root ::= \"a\"{2,3}", "a", false},
      {"root ::= \"a\"{2}", "aaa", false},
      {"root ::= \"a\"{2,}", "aaaa", true},
      {"root ::= [^a-z\\n\\]]+", "AB1", true},
      {"root ::= [^a-z\\n\\]]+", "]", false},
      {"root ::= [a-]+", "a-", true},
      {"root ::= \"\\u00e9\\x41\\U0001F600\\\"\"", "éA\xF0\x9F\x98\x80\"", true},
      {"root ::= .", "\n", true},
      {"root ::= .", "日", true},
      {"root ::= .", "\xE6", false},
      {"root ::= \"\"", "", true},
      {"root ::= \"(\" root \")\" | \"\"", "((()))", true},
      {"root ::= \"(\" root \")\" | \"\"", "((())", false},
      {"root ::= a\na ::= \"x\" b\nb ::= a | \"y\"", "xxxy", true},
      {"root ::= (\"a\"*)*\"b\"", "aaab", true},
      {"root ::= \"a\" root | \"b\" root | \"ab\" root | \"\"", "abababab", true},
  };
  for (const auto& [text, example, matches] : cases) {
    EXPECT_EQ(Matches(Gbnf(text), example), matches) << text << "\n" << example;
  }
}

TEST(Gbnf, SaysWhatIsWrongAndWhere) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"a ::= \"x\"", "no rule \"root\""},
      {"root ::= \"x\"\n  b", "line 2: \"::=\" is missing"},
      {"root ::= \"x\" b\n\n", "line 1: the rule \"b\" is not defined"},
      {"root ::= \"x", "line 1: the literal does not end"},
      {"root ::= [x", "line 1: the class does not end"},
      {"root ::= (\"x\"\n\n\"y\"", "line 1: the group does not end"},
      {"root ::= \"x\" )", "a rule ends here"},
      {"root ::= \"x\"\nroot ::= \"y\"", "line 2: the rule \"root\" is defined twice"},
      {"root ::= \"\\q\"", "this escape"},
      {"root ::= \"\\x4\"", "2 hexadecimal digits"},
      {"root ::= *", "is expected here"},
      {"root ::= <think>", "angle brackets"},
      {"root ::= \"a\"{1,1000000}", "100,000"},
      {"root ::= [b-a]", "wrong order"},
      {"root ::= root \"a\" | \"b\"", "refers to itself"},
      {"root ::= a\na ::= \"x\"? b\nb ::= a \"y\" | \"z\"", "refers to itself"},
      {"root ::= \"a\" root", "no text fits"},
      {"root ::= \"\\U00110000\"", "beyond"},
      {"\xff", "UTF-8"},
  };
  for (const auto& [text, message] : cases) {
    const auto grammar = CompileGrammar(Spec(GrammarSpec::Kind::kGbnf, text));
    ASSERT_FALSE(grammar.ok()) << text;
    EXPECT_NE(grammar.status().message().find(message), std::string_view::npos)
        << text << ": " << grammar.status().message();
  }
}

TEST(Tags, FreeTextUntilATriggerThenATag) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kTags;
  const auto call = [](std::string_view schema) {
    return std::make_shared<const GrammarSpec>(Spec(GrammarSpec::Kind::kJsonSchema, schema));
  };
  spec.tags = {{"<f=a>", call(R"({"type": "integer"})"), "</f>"},
               {"<f=b>", call(R"({"type": "boolean"})"), "</f>"}};
  spec.triggers = {"<f="};
  auto grammar = Compiled(spec);
  for (const char* text : {"", "hello <f", "x <f=a>12</f> y <f=b>true</f>", "<<f=a>1</f>"}) {
    EXPECT_TRUE(Matches(grammar, text)) << text;
  }
  for (const char* text : {"<f=", "<f=c>1</f>", "<f=a>true</f>", "a <f=a>1"}) {
    EXPECT_FALSE(Matches(grammar, text)) << text;
  }
  const std::vector<std::string> tokens = BytesAnd(
      {"<f=", "<f=a>", "<f=a>1", "<f=c", "hello <", "=", "日本", "</f>", "1</f> a", "1</f><f=b>t"});
  for (const char* prefix : {"", "x<", "x<f", "<f=a>", "<f=a>1", "<f=a>1</f>"}) {
    CheckMask(grammar, tokens, prefix);
  }
  spec.stop_after_first = true;
  grammar = Compiled(spec);
  EXPECT_TRUE(Matches(grammar, "x <f=a>12</f>"));
  EXPECT_FALSE(Matches(grammar, "x <f=a>12</f> y"));
  spec.at_least_one = true;
  grammar = Compiled(spec);
  EXPECT_TRUE(Matches(grammar, "<f=a>12</f>"));
  EXPECT_FALSE(Matches(grammar, "x <f=a>12</f>"));
  spec.stop_after_first = false;
  spec.separator = "\n";
  grammar = Compiled(spec);
  EXPECT_TRUE(Matches(grammar, "<f=a>12</f>\n<f=b>false</f>"));
  EXPECT_FALSE(Matches(grammar, "<f=a>12</f><f=b>false</f>"));
  spec.at_least_one = false;
  spec.triggers = {"<g"};
  EXPECT_FALSE(CompileGrammar(spec).ok());
}

}  // namespace
}  // namespace tokamak::grammar
