// Tests the fields that ask for a structured output.
#include "server/openai/structured_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "server/openai/prepare.h"
#include "server/openai/request.h"
#include "server/openai/status_response.h"
#include "server/testing/fake_engine.h"

namespace tokamak {
namespace {

using Json = nlohmann::ordered_json;
using Kind = StructuredOutput::Kind;

Result<CompletionRequest> Parse(bool chat, const Json& fields) {
  Json body = chat ? Json::parse(R"({"messages": [{"role": "user", "content": "a"}]})")
                   : Json{{"prompt", "a"}};
  body.update(fields);
  return chat ? ParseChatRequest(body.dump()) : ParseCompletionRequest(body.dump());
}

TEST(StructuredFields, AreReadUnderEveryName) {
  const Json schema = Json::parse(R"({"type": "object", "properties": {"b": {}, "a": {}}})");
  const std::string text = R"({"type":"object","properties":{"b":{},"a":{}}})";  // in this order
  const StructuredOutput by_schema{.kind = Kind::kJsonSchema, .text = text};
  const StructuredOutput by_regex{.kind = Kind::kRegex, .text = "a+"};
  const StructuredOutput by_grammar{.kind = Kind::kGrammar, .text = "root ::= \"a\""};
  const StructuredOutput by_choice{.kind = Kind::kChoice, .choices = {"b", "a"}};
  const StructuredOutput any_object{.kind = Kind::kJsonObject};
  const Json named = {{"name", "n"}, {"strict", true}, {"schema", schema}};
  const std::vector<std::pair<Json, StructuredOutput>> cases = {
      {{{"response_format", {{"type", "json_object"}}}}, any_object},
      {{{"response_format", {{"type", "json_object"}, {"schema", schema}}}}, by_schema},
      {{{"response_format", {{"type", "json_object"}, {"schema", ""}}}}, any_object},
      {{{"response_format", {{"type", "json_schema"}, {"json_schema", named}}}}, by_schema},
      {{{"structured_outputs", {{"json", schema}}}}, by_schema},
      {{{"structured_outputs", {{"json_object", true}}}}, any_object},
      {{{"structured_outputs", {{"regex", "a+"}}}}, by_regex},
      {{{"structured_outputs", {{"choice", {"b", "a"}}, {"json", nullptr}}}}, by_choice},
      {{{"structured_outputs", {{"grammar", by_grammar.text}}}}, by_grammar},
      {{{"guided_json", schema}}, by_schema},
      {{{"guided_json", text}}, by_schema},
      {{{"guided_regex", "a+"}}, by_regex},
      {{{"guided_choice", {"b", "a"}}}, by_choice},
      {{{"guided_grammar", by_grammar.text}}, by_grammar},
      {{{"extra_body", {{"guided_regex", "a+"}}}}, by_regex},
      {{{"grammar", by_grammar.text}}, by_grammar},
      {{{"json_schema", schema}}, by_schema},
      {{{"regex", "a+"}}, by_regex},
      {{{"ebnf", by_grammar.text}}, by_grammar},
  };
  for (const bool chat : {true, false}) {
    for (const auto& [fields, wanted] : cases) {
      const auto request = Parse(chat, fields);
      ASSERT_TRUE(request.ok()) << fields << request.status().ToString();
      EXPECT_EQ(request->sampling.structured_output, wanted) << fields;
      EXPECT_TRUE(request->unknown_fields.empty()) << fields;
    }
  }
}

// vLLM's structural tags, in their older and their newer form.
TEST(StructuredFields, ReadsStructuralTags) {
  const Json schema = Json::parse(R"({"type": "integer"})");
  const Json older = {{"type", "structural_tag"},
                      {"structures", {{{"begin", "<f=a>"}, {"schema", schema}, {"end", "</f>"}}}},
                      {"triggers", {"<f="}}};
  const Json content = {{"type", "json_schema"}, {"json_schema", schema}};
  const Json newer = {{"type", "structural_tag"},
                      {"format",
                       {{"type", "triggered_tags"},
                        {"triggers", {"<f="}},
                        {"tags", {{{"begin", "<f=a>"}, {"content", content}, {"end", "</f>"}}}},
                        {"stop_after_first", true}}}};
  StructuredOutput wanted{.kind = Kind::kTags};
  wanted.tags = {{.begin = "<f=a>", .schema = R"({"type":"integer"})", .end = "</f>"}};
  wanted.triggers = {"<f="};
  for (const bool is_newer : {false, true}) {
    wanted.ends_after_tag = is_newer;
    const Json& tag = is_newer ? newer : older;
    for (const Json& fields :
         {Json{{"response_format", tag}}, Json{{"structured_outputs", {{"structural_tag", tag}}}},
          Json{{"structured_outputs", {{"structural_tag", tag.dump()}}}}}) {
      for (const bool chat : {true, false}) {
        const auto request = Parse(chat, fields);
        ASSERT_TRUE(request.ok()) << fields << request.status().ToString();
        EXPECT_EQ(request->sampling.structured_output, wanted) << fields;
        EXPECT_TRUE(request->unknown_fields.empty()) << fields;
      }
    }
  }
  const auto refused = [&](Json tag, const char* pointer, const Json& value) {
    tag[Json::json_pointer(pointer)] = value;
    const auto request = Parse(true, {{"response_format", tag}});
    EXPECT_FALSE(request.ok()) << tag;
    return request.ok() ? "" : LeadingPath(request.status().message());
  };
  EXPECT_EQ(refused(older, "/triggers", Json::array()), "response_format.triggers");
  EXPECT_EQ(refused(older, "/triggers", nullptr), "response_format.triggers");
  EXPECT_EQ(refused(older, "/triggers", "<f="), "response_format.triggers");
  EXPECT_EQ(refused(older, "/triggers/0", ""), "response_format.triggers[0]");
  EXPECT_EQ(refused(older, "/triggers/0", 5), "response_format.triggers[0]");
  EXPECT_EQ(refused(older, "/structures/0/begin", ""), "response_format.structures[0].begin");
  EXPECT_EQ(refused(older, "/structures/0", 5), "response_format.structures[0]");
  EXPECT_EQ(refused(older, "/structures/0/begin", "f="), "response_format.structures[0].begin");
  EXPECT_EQ(refused(older, "/structures/0/schema", 5), "response_format.structures[0].schema");
  EXPECT_EQ(refused(older, "/structures/0/end", 5), "response_format.structures[0].end");
  EXPECT_EQ(refused(older, "/structures", Json::array()), "response_format.structures");
  EXPECT_EQ(refused(older, "/more", 1), "response_format");
  EXPECT_EQ(refused(older, "/structures/0/more", 1), "response_format.structures[0]");
  EXPECT_EQ(refused(newer, "/format/tags/0/content/style", "xml"),
            "response_format.format.tags[0].content");
  EXPECT_EQ(refused(newer, "/format", 5), "response_format.format");
  EXPECT_EQ(refused(newer, "/format/tags", Json::array()), "response_format.format.tags");
  EXPECT_EQ(refused(newer, "/format/tags/0/content", 5), "response_format.format.tags[0].content");
  EXPECT_EQ(refused(newer, "/format/type", "sequence"), "response_format.format.type");
  EXPECT_EQ(refused(newer, "/format/at_least_one", true), "response_format.format.at_least_one");
  EXPECT_EQ(refused(newer, "/format/tags/0/content/type", "any_text"),
            "response_format.format.tags[0].content.type");
}

TEST(StructuredFields, NumbersInSchemasKeepTheirDigits) {
  const std::string schema = R"({"const":123456789012345678901234567890})";
  const auto request = ParseCompletionRequest(R"({"prompt": "a", "guided_json": )" + schema + "}");
  ASSERT_TRUE(request.ok()) << request.status().ToString();
  EXPECT_EQ(request->sampling.structured_output->text, schema);
  const auto forced = ParseChatRequest(
      R"({"messages": [{"role": "user", "content": "a"}], "tool_choice": "required",
          "tools": [{"function": {"name": "f", "parameters":
              {"type": "object", "minimum": -98765432109876543210}}}]})");
  ASSERT_TRUE(forced.ok()) << forced.status().ToString();
  EXPECT_EQ(forced->held_tools.at(0).schema,
            R"({"type":"object","minimum":-98765432109876543210})");
}

TEST(StructuredFields, MayBeOff) {
  for (const char* fields :
       {R"({"response_format": {"type": "text"}})", R"({"response_format": null})",
        R"({"grammar": "", "guided_choice": null, "guided_json": null, "guided_regex": false})",
        R"({"structured_outputs": null})", R"({"guided_whitespace_pattern": null})"}) {
    const auto request = Parse(true, Json::parse(fields));
    ASSERT_TRUE(request.ok()) << fields << request.status().ToString();
    EXPECT_FALSE(request->sampling.structured_output) << fields;
  }
}

TEST(StructuredFields, TakeAPatternForWhiteSpace) {
  const auto request =
      Parse(true, {{"guided_json", {{"type", "object"}}}, {"guided_whitespace_pattern", "[ ]?"}});
  ASSERT_TRUE(request.ok()) << request.status().ToString();
  EXPECT_EQ(request->sampling.structured_output->whitespace_pattern, "[ ]?");
}

TEST(StructuredFields, RefusalsNameThePath) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"response_format": 5})", "response_format"},
      {R"({"response_format": {}})", "response_format.type"},
      {R"({"response_format": []})", "response_format"},
      {R"({"structured_outputs": {}})", "structured_outputs"},
      {R"({"structured_outputs": {"json": null}})", "structured_outputs"},
      {R"({"structured_outputs": {"choice": []}})", "structured_outputs.choice"},
      {R"({"guided_choice": []})", "guided_choice"},
      {R"({"guided_choice": {}})", "guided_choice"},
      {R"({"guided_json": []})", "guided_json"},
      {R"({"guided_json": 0})", "guided_json"},
      {R"({"guided_regex": []})", "guided_regex"},
      {R"({"guided_regex": 0})", "guided_regex"},
      {R"({"response_format": {"type": "json"}})", "response_format.type"},
      {R"({"response_format": {"type": "json_schema"}})", "response_format.json_schema"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}})",
       "response_format.json_schema.schema"},
      {R"({"structured_outputs": {"jsonn": {}}})", "structured_outputs"},
      {R"({"structured_outputs": {"whitespace_pattern": "a"}})",
       "structured_outputs.whitespace_pattern"},
      {R"({"structured_outputs": {"json": {}, "disable_any_whitespace": true}})",
       "structured_outputs.disable_any_whitespace"},
      {R"({"structured_outputs": {"regex": "a", "choice": ["a"]}})", "structured_outputs.choice"},
      {R"({"guided_choice": ["a", 5]})", "guided_choice[1]"},
      {R"({"guided_regex": 5})", "guided_regex"},
      {R"({"regex": 5})", "regex"},
      {R"({"guided_regex": "a", "grammar": "b"})", "grammar"},
      {R"({"guided_whitespace_pattern": "a"})", "guided_whitespace_pattern"},
      {R"({"guided_regex": "a", "guided_whitespace_pattern": "a"})", "guided_whitespace_pattern"},
  };
  for (const auto& [fields, path] : cases) {
    const auto request = Parse(true, Json::parse(fields));
    ASSERT_FALSE(request.ok()) << fields;
    EXPECT_EQ(LeadingPath(request.status().message()), path) << request.status().ToString();
  }
}

class PreparingStructureTest : public ::testing::Test {
 protected:
  Result<PreparedCompletion> Prepare(const std::string& fields, const std::string& chat_template,
                                     const SamplingDefaults& defaults = {}) {
    FakeEngine engine;
    engine.SetChatTemplate(chat_template);
    engine.SetSamplingDefaults(defaults);
    const Preparer preparer(engine, "m", {});
    return preparer.Prepare(true,
                            R"({"messages": [{"role": "user", "content": "a"}], )" + fields + "}");
  }
};

// The engine names the place within the schema.
TEST_F(PreparingStructureTest, RefusalsOfTheEngineHaveTheFieldsPath) {
  for (const auto& [fields, path] : std::vector<std::pair<std::string, std::string>>{
           {R"("response_format": {"type": "json_schema",
               "json_schema": {"schema": {"x": "refused"}}})",
            "response_format.json_schema.schema.a"},
           {R"("structured_outputs": {"regex": "refused"})", "structured_outputs.regex.a"},
           {R"("options": {"regex": "refused"})", "options.regex.a"},
           {R"("response_format": {"type": "structural_tag", "triggers": ["<"], "structures": [
               {"begin": "<", "schema": {}, "end": ""},
               {"begin": "<a", "schema": {"x": "refused"}, "end": ""}]})",
            "response_format.structures[1].schema.a"},
           {R"("structured_outputs": {"structural_tag": {"format": {"type": "triggered_tags",
               "triggers": ["<"], "tags": [{"begin": "<", "end": "", "content": {
                   "type": "json_schema", "json_schema": {"x": "refused"}}}]}}})",
            "structured_outputs.structural_tag.format.tags[0].content.json_schema.a"}}) {
    const auto prepared = Prepare(fields, "{{ messages[0].content }}");
    ASSERT_FALSE(prepared.ok()) << fields;
    EXPECT_EQ(LeadingPath(prepared.status().message()), path) << prepared.status().ToString();
  }
}

TEST_F(PreparingStructureTest, CopiesOfALargeSchemaForManyPromptsAreRefused) {
  FakeEngine engine;
  const Preparer preparer(engine, "m", {});
  const auto prepare = [&](size_t prompts) {
    Json body = {{"prompt", std::vector<std::string>(prompts, "a")},
                 {"guided_regex", std::string(1 << 20, 'a')}};
    return preparer.Prepare(false, body.dump()).status();
  };
  EXPECT_TRUE(prepare(8).ok()) << prepare(8).ToString();
  EXPECT_EQ(LeadingPath(prepare(9).message()), "prompt") << prepare(9).ToString();
}

TEST_F(PreparingStructureTest, ReasoningIsFreeUnlessTheTemplateTurnsItOff) {
  const auto reasoning = [&](const std::string& end) {
    const auto prepared = Prepare(R"("guided_regex": "a")",
                                  "{{ messages[0].content }}{% if 0 %}</think>{% endif %}" + end);
    EXPECT_TRUE(prepared.ok()) << prepared.status().ToString();
    return prepared->request.sampling.structured_output->reasoning;
  };
  using Reasoning = StructuredOutput::Reasoning;
  EXPECT_EQ(reasoning(""), (Reasoning{.open = "<think>", .close = "</think>"}));
  EXPECT_EQ(reasoning("<think>\n"),
            (Reasoning{.open = "<think>", .close = "</think>", .begun = true}));
  EXPECT_EQ(reasoning("<think>\n\n</think>\n\n"), std::nullopt);
}

TEST_F(PreparingStructureTest, AThinkingBudgetHasTheMarksOfTheModelsReasoning) {
  const std::string content = "{{ messages[0].content }}", think = "{% if 0 %}</think>{% endif %}";
  const SamplingDefaults nine = {.thinking_token_budget = 9};
  using Reasoning = StructuredOutput::Reasoning;
  const Reasoning marks = {.open = "<think>", .close = "</think>"};
  Reasoning begun = marks;
  begun.begun = true;
  struct Case {
    std::string fields, end;
    SamplingDefaults defaults;
    std::optional<int32_t> budget;
    std::optional<Reasoning> thinking;
  };
  for (const Case& c :
       std::vector<Case>{{R"("n": 1)", "", nine, 9, marks},
                         {R"("thinking_token_budget": 4)", "", nine, 4, marks},
                         {R"("thinking_token_budget": 0)", "<think>\n", {}, 0, begun},
                         {R"("reasoning_budget": 3, "guided_regex": "a")", "<think>", {}, 3, begun},
                         {R"("thinking_token_budget": -1)", "", nine, {}, {}},
                         {R"("n": 1)", "", {}, {}, {}}}) {
    const auto prepared = Prepare(c.fields, content + think + c.end, c.defaults);
    ASSERT_TRUE(prepared.ok()) << c.fields << prepared.status().ToString();
    EXPECT_EQ(prepared->request.sampling.thinking_token_budget, c.budget) << c.fields;
    EXPECT_EQ(prepared->request.sampling.thinking, c.thinking) << c.fields;
  }
  // Models without such marks have nothing that the server's default could bound.
  for (const char* other : {"", "{# <|channel|>analysis<|message|> #}"}) {
    const auto free = Prepare(R"("n": 1)", content + other, nine);
    ASSERT_TRUE(free.ok()) << free.status().ToString();
    EXPECT_EQ(free->request.sampling.thinking_token_budget, std::nullopt);
    const auto refused = Prepare(R"("reasoning_budget": 5)", content + other, nine);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(LeadingPath(refused.status().message()), "reasoning_budget");
  }
  FakeEngine engine;
  engine.SetSamplingDefaults(nine);
  const auto text = Preparer(engine, "m", {}).Prepare(false, R"({"prompt": "a"})");
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_EQ(text->request.sampling.thinking_token_budget, std::nullopt);
}

constexpr char kTools[] = R"("tools": [
    {"function": {"name": "f", "parameters": {"properties": {"x": {}}}}},
    {"function": {"name": "g", "parameters": {"type": "object"}}}])";
constexpr char kHermes[] = "{{ messages[0].content }}{{ tools }}<tool_call></tool_call>";

TEST_F(PreparingStructureTest, ForcedToolsBecomeTagsAroundTheirSchemas) {
  const auto forced = [&](const std::string& choice) {
    const auto prepared = Prepare(std::string(kTools) + R"(, "tool_choice": )" + choice, kHermes);
    EXPECT_TRUE(prepared.ok()) << prepared.status().ToString();
    return prepared->request.sampling.structured_output.value();
  };
  const StructuredOutput any = forced(R"("required")");
  EXPECT_TRUE(any.must_call);
  ASSERT_EQ(any.calls.size(), 2u);
  EXPECT_EQ(any.calls[0].begin, "<tool_call>\n{\"name\": \"f\", \"arguments\": ");
  EXPECT_EQ(any.calls[0].schema, R"({"properties":{"x":{}},"type":"object"})");
  EXPECT_EQ(any.calls[0].end, "}\n</tool_call>");
  EXPECT_EQ(any.call_separator, "\n?");
  EXPECT_EQ(forced(R"("required", "parallel_tool_calls": false)").call_separator, std::nullopt);
  const StructuredOutput named = forced(R"({"type": "function", "function": {"name": "g"}})");
  ASSERT_EQ(named.calls.size(), 1u);
  EXPECT_EQ(named.calls[0].schema, R"({"type":"object"})");
  EXPECT_EQ(named.call_separator, std::nullopt);
}

// The model may call tools, and one of them is strict.
TEST_F(PreparingStructureTest, StrictToolsHoldTheCallsToTheirSchemas) {
  const std::string strict = R"("tools": [
      {"function": {"name": "f", "strict": true, "parameters": {"properties": {"x": {}}}}},
      {"function": {"name": "g", "parameters": {"x": "refused"}}}])";
  const auto held = Prepare(strict, kHermes);
  ASSERT_TRUE(held.ok()) << held.status().ToString();
  EXPECT_TRUE(held->request.unknown_fields.empty());
  const StructuredOutput& output = held->request.sampling.structured_output.value();
  EXPECT_TRUE(output.calls_in_text);
  EXPECT_EQ(output.triggers, std::vector<std::string>{"<tool_call>"});
  ASSERT_EQ(output.calls.size(), 2u);
  EXPECT_EQ(output.calls[0].schema, R"({"properties":{"x":{}},"type":"object"})");
  EXPECT_EQ(output.calls[1].schema, R"({"type":"object"})") << "g is not strict";
  EXPECT_FALSE(output.ends_after_tag);
  const auto one = Prepare(strict + R"(, "parallel_tool_calls": false)", kHermes);
  EXPECT_TRUE(one->request.sampling.structured_output->ends_after_tag);

  // Without strict tools or calls, or if calls have no form that can be held, the answer is free.
  EXPECT_FALSE(Prepare(kTools, kHermes)->request.sampling.structured_output);
  for (const auto& [fields, source] : std::vector<std::pair<std::string, std::string>>{
           {strict, "{{ tools }}a"},
           {strict, "{{ tools }}a<|start_header_id|>\"parameters\": "},
           {strict + R"(, "tool_choice": "none")", kHermes}}) {
    const auto free = Prepare(fields, source);
    ASSERT_TRUE(free.ok()) << free.status().ToString();
    EXPECT_FALSE(free->request.sampling.structured_output);
    EXPECT_EQ(free->request.unknown_fields, std::vector<std::string>{"tools[].function.strict"});
  }
  for (const auto& [fields, source, path] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {R"("tools": [{"function": {"name": "f", "strict": true,
                "parameters": {"x": "refused"}}}])",
            kHermes, "tools[0].function.parameters.a"}}) {
    const auto refused = Prepare(fields, source);
    ASSERT_FALSE(refused.ok()) << fields;
    EXPECT_EQ(LeadingPath(refused.status().message()), path) << refused.status().ToString();
  }
}

// The answer has the form that the request asks for, or it calls tools.
TEST_F(PreparingStructureTest, ToolsThatTheModelMayCallStandBesideAStructure) {
  const std::string strict = R"("tools": [
      {"function": {"name": "f", "strict": true, "parameters": {"properties": {"x": {}}}}},
      {"function": {"name": "g", "parameters": {"x": "refused"}}}], )";
  const std::string form = R"("guided_regex": "a")";
  const auto both = Prepare(strict + form, kHermes);
  ASSERT_TRUE(both.ok()) << both.status().ToString();
  EXPECT_TRUE(both->request.unknown_fields.empty());
  const StructuredOutput& output = *both->request.sampling.structured_output;
  EXPECT_EQ(output.kind, Kind::kRegex);
  EXPECT_EQ(output.text, "a");
  EXPECT_FALSE(output.must_call);
  ASSERT_EQ(output.calls.size(), 2u);
  EXPECT_EQ(output.calls[0].schema, R"({"properties":{"x":{}},"type":"object"})");
  EXPECT_EQ(output.calls[1].schema, R"({"type":"object"})") << "g is not strict";
  EXPECT_EQ(output.call_separator, "\n?");
  EXPECT_EQ(both->answer_format->call_begins,
            (std::vector<std::string>{output.calls[0].begin, output.calls[1].begin}));
  const auto one = Prepare(strict + form + R"(, "parallel_tool_calls": false)", kHermes);
  EXPECT_EQ(one->request.sampling.structured_output->call_separator, std::nullopt);

  // The form decides what is reasoning.
  const auto reasoning = [&](const std::string& end) {
    return Prepare(strict + form, kHermes + end)->answer_format->reasoning;
  };
  EXPECT_NE(reasoning("<think></think>a"), nullptr);
  EXPECT_EQ(reasoning("<think></think>"), nullptr) << "it is over";

  // The same without strict tools, and for calls without a marker.
  constexpr char kBare[] = "{{ tools }}a<|start_header_id|>\"parameters\": ";
  for (const char* source : {kHermes, kBare}) {
    const auto loose = Prepare(std::string(kTools) + ", " + form, source);
    ASSERT_TRUE(loose.ok()) << loose.status().ToString();
    EXPECT_EQ(loose->request.sampling.structured_output->calls[0].schema, R"({"type":"object"})");
  }
  // No call can be made, or none is read.
  for (const auto& [more, source] : std::vector<std::pair<std::string, std::string>>{
           {R"(, "tool_choice": "none")", kHermes}, {"", "{{ tools }}a"}}) {
    const auto text = Prepare(strict + form + more, source);
    ASSERT_TRUE(text.ok()) << text.status().ToString();
    EXPECT_TRUE(text->request.sampling.structured_output->calls.empty());
  }
  // Only a call can be made.
  const auto forced =
      Prepare(std::string(kTools) + ", " + form + R"(, "tool_choice": "required")", kHermes);
  ASSERT_TRUE(forced.ok()) << forced.status().ToString();
  EXPECT_TRUE(forced->request.sampling.structured_output->must_call);

  const std::string refused_tool = R"("tools": [{"function": {"name": "f", "strict": true,
      "parameters": {"x": "refused"}}}], )";
  for (const auto& [fields, source, path] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {R"("tools": [{"function": {"name": "a b"}}], )" + form, kHermes, "tools"},
           {refused_tool + form, kHermes, "tools[0].function.parameters.a"},
           {strict + R"("guided_regex": "refused")", kHermes, "guided_regex.a"},
           {strict + R"("guided_regex": "refused", "tool_choice": "required")", kHermes,
            "guided_regex.a"}}) {
    const auto refused = Prepare(fields, source);
    ASSERT_FALSE(refused.ok()) << fields;
    EXPECT_EQ(LeadingPath(refused.status().message()), path) << refused.status().ToString();
  }
}

TEST_F(PreparingStructureTest, ToolsThatCannotBeForcedAreRefused) {
  const std::string tools = std::string(kTools) + ", ";
  for (const auto& [fields, path] : std::vector<std::pair<std::string, std::string>>{
           {R"("tool_choice": "required")", "tool_choice"},
           {tools + R"("tool_choice": {"function": {"name": "h"}})", "tool_choice.function.name"},
           {tools + R"("tool_choice": {"type": "custom"})", "tool_choice.type"},
           {tools + R"("tool_choice": "any")", "tool_choice"},
           {R"("tools": [{"function": {"name": "a b"}}], "tool_choice": "required")",
            "tool_choice"},
           {R"("tools": [{"function": {"name": "f", "parameters": {"x": "refused"}}}],
               "tool_choice": "required")",
            "tools[0].function.parameters.a"}}) {
    const auto prepared = Prepare(fields, kHermes);
    ASSERT_FALSE(prepared.ok()) << fields;
    EXPECT_EQ(LeadingPath(prepared.status().message()), path) << prepared.status().ToString();
  }
  const auto unknown = Prepare(tools + R"("tool_choice": "required")", "{{ tools }}");
  EXPECT_EQ(LeadingPath(unknown.status().message()), "tool_choice");
}

}  // namespace
}  // namespace tokamak
