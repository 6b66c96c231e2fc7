// Everything that templates can do costs steps in proportion to what it reads: each filter, test,
// method, function and operator is measured on large operands.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "chat/jinja/interpreter.h"
#include "chat/jinja/parser.h"

namespace tokamak::jinja {
namespace {

constexpr size_t kBytes = 1 << 16;  // of the large strings
constexpr int kItems = 4096;        // of the large lists and dictionaries
constexpr int kTurns = 8;           // evaluations of each expression

// The minimum number of steps of an expression.
constexpr int64_t kText = kBytes / 64;     // it reads a large string
constexpr int64_t kList = kItems / 2;      // it visits a large list
constexpr int64_t kOnce = kText / kTurns;  // it reads a string whose length is cached afterwards
constexpr int64_t kFree = 0;               // its time does not depend on its operands

struct Case {
  const char* name;
  const char* expression;
  int64_t least;
};

Value Large(std::string_view piece, size_t bytes = kBytes) {
  std::string text;
  while (text.size() < bytes) text += piece;
  return Value::String(std::move(text));
}

// Made anew for each rendering, because strings cache their lengths.
Inputs MakeInputs() {
  std::vector<Value> texts, numbers, big, dicts;
  auto dict = std::make_unique<DictObject>();
  auto names = std::make_unique<DictObject>();
  for (int i = 0; i < kItems; ++i) {
    const Value name = Value::String("item " + std::to_string(i));
    texts.push_back(name);
    numbers.push_back(Value::Int(i));
    if (i < kItems / 4) big.push_back(Value::BigInt(std::to_string(i + 1) + std::string(30, '0')));
    auto one = std::make_unique<DictObject>();
    one->Set(Value::String("x"), name);
    dicts.push_back(MakeDict(std::move(one), nullptr));
    dict->Set(name, Value::Int(i));
    if (i < 500) names->Set(name, Value::Int(i));
  }
  const std::string a(kBytes, 'a');
  dict->Set(Value::String(a), Value::Int(0));
  return {{"a", Value::String(a)},
          {"same", Value::String(a)},
          {"needle", Value::String(std::string(kBytes / 2, 'a') + "b")},
          {"spaces", Large(" ")},
          {"lines", Large("\n")},
          {"accents", Large("\xc3\xa9")},
          {"percent", Value::String(a + "%d")},
          {"braces", Value::String(a + "{}")},
          {"texts", Value::List(texts)},
          {"texts_too", Value::List(texts)},
          {"tuple", Value::List(texts, nullptr, Type::kTuple)},
          {"numbers", Value::List(numbers)},
          {"big", Value::List(big)},
          {"dicts", Value::List(dicts)},
          {"dict_a", MakeDict(std::move(dict), nullptr)},
          {"names", MakeDict(std::move(names), nullptr)}};
}

// The steps of one rendering that evaluates an expression kTurns times.
int64_t StepsOfRendering(const std::string& expression) {
  const std::string source =
      "{% set ns = namespace() %}{% set long = namespace(**{a: 1}) %}"
      "{% macro m() %}{{ kwargs is none }}{{ varargs is none }}{% endmacro %}"
      "{% for turn in range(" +
      std::to_string(kTurns) + ") %}{% set result = (" + expression + ") %}{% endfor %}";
  const auto program = ParseTemplate(source);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  if (!program.ok()) return 0;
  const Limits limits = {
      .steps = int64_t{1} << 40, .memory_bytes = size_t{1} << 34, .output_bytes = 1 << 20};
  const std::tm now = {};
  Interpreter interpreter(**program, MakeInputs(), limits, now);
  const auto rendered = interpreter.Render();
  EXPECT_TRUE(rendered.ok()) << expression << ": " << rendered.status().ToString();
  return limits.steps - interpreter.budget().steps_left();
}

// The steps of one evaluation, without those of the surrounding template.
int64_t StepsOf(const std::string& expression) {
  static const int64_t around = StepsOfRendering("none");
  return (StepsOfRendering(expression) - around) / kTurns;
}

template <size_t n>
void Check(const Case (&cases)[n], const std::map<std::string, int>& names) {
  std::map<std::string, int> left = names;
  for (const Case& one : cases) {
    EXPECT_TRUE(names.contains(one.name)) << one.name;
    left.erase(one.name);
    const int64_t steps = StepsOf(one.expression);
    EXPECT_GE(steps, one.least) << one.expression;
    if (one.least == kFree) {
      EXPECT_LT(steps, kOnce) << one.expression << " has its price";
    }
  }
  for (const auto& [name, count] : left) ADD_FAILURE() << "no case says what it costs: " << name;
}

template <typename Function>
void AddNames(std::span<const Named<Function>> functions, std::map<std::string, int>* names) {
  for (const auto& [name, function] : functions) ++(*names)[std::string(name)];
}

TEST(Charges, FiltersAreCharged) {
  static constexpr Case kCases[] = {
      {"abs", "-5|abs", kFree},
      {"attr", "dict_a|attr(a)", kFree},
      {"batch", "texts|batch(3)", kList},
      {"capitalize", "a|capitalize", kText},
      {"center", "a|center(9)", kText},
      {"count", "a|count", kOnce},
      {"d", "a|d(same)", kFree},
      {"default", "a|default(same)", kFree},
      {"dictsort", "dict_a|dictsort", kList},
      {"e", "a|e", kText},
      {"escape", "a|escape", kText},
      {"first", "texts|first", kFree},
      {"first", "dict_a|first", kList},
      {"float", "spaces|float", kText},
      {"forceescape", "a|forceescape", kText},
      {"format", "percent|format(1)", kText},
      {"format", "'%s'|format(a)", kText},
      {"groupby", "dicts|groupby('x')", kList},
      {"indent", "lines|indent", kText},
      {"int", "spaces|int", kText},
      {"items", "dict_a|items", kList},
      {"join", "texts|join", kList},
      {"last", "dict_a|last", kList},
      {"length", "a|length", kOnce},
      {"list", "a|list", kText},
      {"lower", "a|lower", kText},
      {"map", "texts|map('upper')", kList},
      {"map", "dicts|map(attribute='x')", kList},
      {"max", "texts|max", kList},
      {"min", "texts|min", kList},
      {"reject", "texts|reject('none')", kList},
      {"rejectattr", "dicts|rejectattr('x')", kList},
      {"replace", "a|replace(needle, 'x')", kText},
      {"replace", "a|replace('', 'x')", kText},
      {"reverse", "a|reverse", kText},
      {"reverse", "texts|reverse", kList},
      {"round", "1.5|round", kFree},
      {"safe", "a|safe", kText},
      {"select", "texts|select('in', texts_too)", kList * kList},
      {"selectattr", "dicts|selectattr('x')", kList},
      {"slice", "texts|slice(3)", kList},
      {"sort", "texts|sort", kList * 12},
      {"sort", "dicts|sort(attribute='x,x')", kList * 24},
      {"string", "texts|string", kList},
      {"sum", "numbers|sum", kList},
      {"title", "a|title", kText},
      {"tojson", "a|tojson", kText},
      {"tojson", "dict_a|tojson(sort_keys=true)", kList * 12},
      {"trim", "spaces|trim", kText},
      {"trim", "a|trim('cba')", kText},
      {"truncate", "a|truncate(40000)", kText},
      {"truncate", "'short'|truncate(100000, end=a)", kText},
      {"unique", "texts|unique", kList},
      {"unique", "big|unique", kList * kList / 16},  // all have the same hash
      {"unique", "[a, same]|unique", kText},
      {"upper", "a|upper", kText},
      {"urlencode", "a|urlencode", kText},
      {"wordcount", "a|wordcount", kText},
  };
  std::map<std::string, int> names;
  AddNames(TextFilters(), &names);
  AddNames(ListFilters(), &names);
  Check(kCases, names);
}

TEST(Charges, TestsAreCharged) {
  static constexpr Case kCases[] = {
      {"!=", "a is ne(same)", kText},
      {"<", "a is lt(same)", kText},
      {"<=", "a is le(same)", kText},
      {"==", "a is eq(same)", kText},
      {">", "a is gt(same)", kText},
      {">=", "a is ge(same)", kText},
      {"boolean", "a is boolean", kFree},
      {"callable", "a is callable", kFree},
      {"defined", "a is defined", kFree},
      {"divisibleby", "percent is divisibleby(1)", kText},
      {"eq", "texts is eq(texts_too)", kList},
      {"equalto", "a is equalto(same)", kText},
      {"escaped", "a is escaped", kFree},
      {"even", "percent is even", kText},
      {"false", "a is false", kFree},
      {"filter", "a is filter", kFree},
      {"float", "a is float", kFree},
      {"ge", "texts is ge(texts_too)", kList},
      {"greaterthan", "a is greaterthan(same)", kText},
      {"gt", "a is gt(same)", kText},
      {"in", "needle is in(a)", kText},
      {"integer", "a is integer", kFree},
      {"iterable", "a is iterable", kFree},
      {"le", "a is le(same)", kText},
      {"lessthan", "a is lessthan(same)", kText},
      {"lower", "a is lower", kText},
      {"lt", "a is lt(same)", kText},
      {"mapping", "a is mapping", kFree},
      {"ne", "a is ne(same)", kText},
      {"none", "a is none", kFree},
      {"number", "a is number", kFree},
      {"odd", "percent is odd", kText},
      {"sameas", "a is sameas(same)", kFree},
      {"sequence", "a is sequence", kFree},
      {"string", "a is string", kFree},
      {"test", "a is test", kFree},
      {"true", "a is true", kFree},
      {"undefined", "a is undefined", kFree},
      {"upper", "spaces is upper", kText},
  };
  std::map<std::string, int> names;
  AddNames(Tests(), &names);
  Check(kCases, names);
}

TEST(Charges, StringMethodsAreCharged) {
  static constexpr Case kCases[] = {
      {"capitalize", "a.capitalize()", kText},
      {"casefold", "a.casefold()", kText},
      {"center", "a.center(70000)", kText},
      {"count", "a.count(needle)", kText},
      {"count", "a.count('')", kText},
      {"count", "accents.count('a', 20000, 20001)", kText / 2},
      {"endswith", "a.endswith(same)", kText},
      {"endswith", "a.endswith((needle, same))", kText},
      {"find", "a.find(needle)", kText},
      {"find", "a.find('b')", kText},
      {"format", "braces.format(1)", kText},
      {"format", "'{:>70000}'.format(1)", kText},
      {"format", "'{item 499}'.format(**names)", kItems / 16},
      {"index", "needle.index('b')", kText / 2},
      {"isalnum", "a.isalnum()", kText},
      {"isalpha", "a.isalpha()", kText},
      {"isascii", "a.isascii()", kText},
      {"isdecimal", "a.isdecimal()", kText},
      {"isdigit", "a.isdigit()", kText},
      {"islower", "a.islower()", kText},
      {"isnumeric", "a.isnumeric()", kText},
      {"isspace", "spaces.isspace()", kText},
      {"istitle", "spaces.istitle()", kText},
      {"isupper", "spaces.isupper()", kText},
      {"join", "''.join(texts)", kList},
      {"join", "a.join('xyz')", 2 * kText},
      {"ljust", "a.ljust(70000)", kText},
      {"lower", "a.lower()", kText},
      {"lstrip", "spaces.lstrip()", kText},
      {"partition", "a.partition(needle)", kText},
      {"removeprefix", "a.removeprefix(same)", kText},
      {"removeprefix", "a.removeprefix(needle)", kText},
      {"removesuffix", "a.removesuffix(needle)", kText},
      {"replace", "a.replace(needle, '')", kText},
      {"rfind", "a.rfind(needle)", kText},
      {"rindex", "needle.rindex('aab')", kText / 2},
      {"rjust", "a.rjust(70000)", kText},
      {"rpartition", "a.rpartition(needle)", kText},
      {"rsplit", "a.rsplit(needle)", kText},
      {"rsplit", "lines.rsplit()", kText},
      {"rstrip", "spaces.rstrip()", kText},
      {"split", "a.split(needle)", kText},
      {"split", "lines.split('\\n')", kBytes},
      {"splitlines", "lines.splitlines()", kBytes},
      {"startswith", "a.startswith(same)", kText},
      {"startswith", "accents.startswith('a', 20000)", kText / 2},
      {"strip", "spaces.strip()", kText},
      {"strip", "a.strip('cba')", kText},
      {"swapcase", "a.swapcase()", kText},
      {"title", "a.title()", kText},
      {"upper", "a.upper()", kText},
      {"zfill", "a.zfill(70000)", kText},
  };
  std::map<std::string, int> names;
  AddNames(MethodsOf(Type::kString), &names);
  Check(kCases, names);
}

TEST(Charges, OtherMethodsAndFunctionsAreCharged) {
  static constexpr Case kCases[] = {
      {"changed", "loop.changed(a)", kText * (kTurns - 1) / kTurns},
      {"copy", "dict_a.copy()", kFree},
      {"count", "texts.count('x')", kList},
      {"count", "tuple.count('x')", kList},
      {"cycle", "loop.cycle(a, same)", kFree},
      {"dict", "dict(dict_a)", kList},
      {"dict", "dict(**names)", kItems / 16},
      {"get", "dict_a.get(a)", kText},
      {"index", "texts.index('item 4095')", kList},
      {"is_integer", "1.5.is_integer()", kFree},
      {"items", "dict_a.items()", kList},
      {"keys", "dict_a.keys()", kList},
      {"namespace", "namespace(**{a: 1})", kText},
      {"raise_exception", "raise_exception if false else 1", kFree},  // it ends the rendering
      {"range", "range(100000)", kFree},
      {"strftime_now", "strftime_now('%Y')", kFree},
      {"values", "dict_a.values()", kList},
  };
  std::map<std::string, int> names;
  for (const Type type : {Type::kDict, Type::kList, Type::kTuple, Type::kFloat, Type::kLoop}) {
    AddNames(MethodsOf(type), &names);
  }
  AddNames(Globals(), &names);
  Check(kCases, names);
}

TEST(Charges, OperatorsAreCharged) {
  static constexpr Case kCases[] = {
      {"", "a + same", kText * 2},
      {"", "texts + texts_too", kList},
      {"", "a * 2", kText * 2},
      {"", "2 * texts", kList},
      {"", "a ~ same", kText * 2},
      {"", "percent % 1", kText},
      {"", "'%.60000s' % a if false else '%70000d' % 1", kText},
      {"", "a == same", kText},
      {"", "a != same", kText},
      {"", "a < same", kText},
      {"", "a <= same", kText},
      {"", "a > same", kText},
      {"", "a >= same", kText},
      {"", "texts == texts_too", kList},
      {"", "texts < texts_too", kList},
      {"", "needle in a", kText},
      {"", "needle not in a", kText},
      {"", "'b' in a", kText},
      {"", "a in dict_a", kText},
      {"", "'x' in texts", kList},
      {"", "'x' in tuple", kList},
      {"", "5 in range(4096)", kList},
      {"", "not a", kFree},
      {"", "a and same or a", kFree},
      {"", "a if a else same", kFree},
      {"", "a[5]", kOnce},
      {"", "a[99999]", kOnce},
      {"", "accents[20000]", kText / 2},
      {"", "a[1:]", kText},
      {"", "accents[20000:20001]", kText / 2},
      {"", "a[::2]", kText},
      {"", "texts[1:]", kList},
      {"", "dict_a[a]", kText},
      {"", "long[a]", kText},
      {"", "{a: 1}", kText},
      {"", "{1:1, 2:1, 3:1, 4:1, 5:1, 6:1, 7:1, 8:1, (a, a): 1}", kText * 2},
      {"", "m(*texts)", kList},
      {"", "m(**names)", kItems / 16},
      {"", "dict_a == dict(dict_a)", kList},
  };
  Check(kCases, {{"", 1}});
}

// Passing over a few names is included in the step itself.
TEST(Charges, VariablesAndAttributesAreCharged) {
  constexpr int kNames = 2000;
  std::string many = "{% for x in [1] %}";
  for (int i = 0; i < kNames; ++i) many += "{% set v" + std::to_string(i) + " = 1 %}";
  for (const std::string& use : {std::string("{{ v1999 }}"), std::string("{% set v1999 = 2 %}"),
                                 std::string("{{ nothing is defined }}")}) {
    std::string source = many;
    for (int i = 0; i < 100; ++i) source += use;
    const auto program = ParseTemplate(source + "{% endfor %}");
    ASSERT_TRUE(program.ok()) << program.status().ToString();
    const Limits limits = {.steps = int64_t{1} << 40};
    Interpreter interpreter(**program, {}, limits, {});
    ASSERT_TRUE(interpreter.Render().ok());
    const int64_t steps = limits.steps - interpreter.budget().steps_left();
    EXPECT_GE(steps, 100 * kNames / 32) << use;
  }
  std::string source = "{% set ns = namespace() %}";
  for (int i = 0; i < kNames; ++i) source += "{% set ns.v" + std::to_string(i) + " = 1 %}";
  const auto program = ParseTemplate(source);
  ASSERT_TRUE(program.ok());
  const Limits limits = {.steps = int64_t{1} << 40};
  Interpreter interpreter(**program, {}, limits, {});
  ASSERT_TRUE(interpreter.Render().ok());
  EXPECT_GE(limits.steps - interpreter.budget().steps_left(), int64_t{kNames} * kNames / 64);
}

}  // namespace
}  // namespace tokamak::jinja
