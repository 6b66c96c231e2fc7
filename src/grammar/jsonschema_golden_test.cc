// Documents that Python's jsonschema accepts or rejects (tests/golden/make_grammar_goldens.py).
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/file.h"
#include "base/json/json_value.h"
#include "grammar/testing/check_masks.h"

namespace tokamak::grammar {
namespace {

TEST(JsonSchemaGolden, AgreesWithPythonsJsonschema) {
  const auto text = ReadWholeFile(TOKAMAK_SOURCE_DIR "/tests/golden/grammar/schemas.json", 1 << 24);
  ASSERT_TRUE(text.ok());
  const std::optional<JsonValue> golden = JsonValue::Parse(*text, {});
  ASSERT_TRUE(golden);
  size_t accepted = 0, rejected = 0;
  for (const JsonValue& c : *golden->Find("cases")->AsArray()) {
    const std::string& schema = *c.Find("schema")->AsString();
    const auto grammar = Compiled(Spec(GrammarSpec::Kind::kJsonSchema, schema));
    ASSERT_NE(grammar, nullptr);
    for (const JsonValue& document : *c.Find("accepted")->AsArray()) {
      ++accepted;
      EXPECT_TRUE(Matches(grammar, *document.AsString())) << schema << "\n" << *document.AsString();
    }
    for (const JsonValue& document : *c.Find("rejected")->AsArray()) {
      ++rejected;
      EXPECT_FALSE(Matches(grammar, *document.AsString())) << schema << "\n"
                                                           << *document.AsString();
    }
  }
  EXPECT_GT(accepted, 300u);
  EXPECT_GT(rejected, 300u);
}

}  // namespace
}  // namespace tokamak::grammar
