#include "server/openai/structured_fields.h"

#include <string>
#include <utility>

#include "base/error.h"

namespace tokamak {
namespace {

using Kind = StructuredOutput::Kind;

constexpr size_t kMaxChoices = 4096;
constexpr char kField[] = "structured_output";  // in the engine's messages

// Whether a field asks for nothing. Empty lists and objects do not mean that: an answer without the
// form that the client wants would be worse than an error.
bool AsksNothing(const JsonReader& field) {
  const JsonValue& value = field.value();
  return value.is_null() || value.AsBool() == false ||
         (value.is_string() && value.AsString()->empty());
}

class StructuredFields {
 public:
  StructuredFields(SamplingParams& sampling, FieldSpellings& spellings)
      : sampling_(sampling), spellings_(spellings) {}

  void ReadResponseFormat(const JsonReader& format) {
    if (AsksNothing(format)) return;
    if (!format.is_object()) return format.Bad("an object");
    const std::string type = format.String("type");
    if (!format.ok() || type == "text") return;
    if (type == "json_schema") return ReadNamedSchema(format["json_schema"]);
    if (type != "json_object") {
      return format.Fail("type", "must be \"text\", \"json_object\" or \"json_schema\"");
    }
    // llama.cpp's server takes a schema here.
    const JsonReader schema = format["schema"];
    if (!AsksNothing(schema)) return ReadSchema(schema);
    Give(format, {.kind = Kind::kJsonObject});
  }

  // vLLM's object.
  void ReadStructuredOutputs(const JsonReader& outputs) {
    if (AsksNothing(outputs)) return;
    if (!outputs.is_object()) return outputs.Bad("an object");
    outputs.Only({"json", "json_object", "regex", "choice", "grammar", "whitespace_pattern",
                  "disable_any_whitespace", "disable_fallback", "disable_additional_properties"});
    for (const char* name : {"disable_any_whitespace", "disable_additional_properties"}) {
      if (outputs.BoolOr(name, false)) outputs.Fail(name, "is not supported; leave it out");
    }
    (void)outputs.BoolOr("disable_fallback", false);  // there is none
    if (outputs.BoolOr("json_object", false)) {
      Give(outputs["json_object"], {.kind = Kind::kJsonObject});
    }
    ReadSchema(outputs["json"]);
    ReadText(outputs["regex"], Kind::kRegex);
    ReadChoice(outputs["choice"]);
    ReadText(outputs["grammar"], Kind::kGrammar);
    ReadWhitespace(outputs["whitespace_pattern"]);
    if (outputs.ok() && !sampling_.structured_output) {
      outputs.Fail("must have \"json\", \"json_object\", \"regex\", \"choice\" or \"grammar\"");
    }
  }

  void ReadSchema(const JsonReader& schema) {
    if (AsksNothing(schema)) return;
    const JsonValue& value = schema.value();
    if (!value.is_object() && !value.is_string()) return schema.Bad("an object");
    Give(schema,
         {.kind = Kind::kJsonSchema, .text = value.is_string() ? schema.String() : value.Dump()});
  }

  void ReadText(const JsonReader& text, Kind kind) {
    if (AsksNothing(text)) return;
    Give(text, {.kind = kind, .text = text.String()});
  }

  void ReadChoice(const JsonReader& choice) {
    if (AsksNothing(choice)) return;
    StructuredOutput output{.kind = Kind::kChoice};
    choice.ForEach(kMaxChoices,
                   [&](const JsonReader& text) { output.choices.push_back(text.String()); });
    if (choice.ok() && output.choices.empty()) return choice.Fail("must have at least one text");
    Give(choice, std::move(output));
  }

  // Requires that the other fields have been read.
  void ReadWhitespace(const JsonReader& pattern) {
    if (AsksNothing(pattern)) return;
    const std::string text = pattern.String();
    if (!pattern.ok()) return;
    std::optional<StructuredOutput>& output = sampling_.structured_output;
    if (!output || (output->kind != Kind::kJsonSchema && output->kind != Kind::kJsonObject)) {
      return pattern.Fail("needs a field that asks for JSON");
    }
    output->whitespace_pattern = text;
  }

 private:
  void ReadNamedSchema(const JsonReader& named) {
    if (!named.is_object()) return named.Bad("an object");
    std::string text;
    named.Read("name", text);
    named.Read("description", text);
    (void)named.BoolOr("strict", true);  // every schema is kept exactly
    if (!named["schema"].is_object()) return named["schema"].Bad("an object");
    ReadSchema(named["schema"]);
  }

  void Give(const JsonReader& field, StructuredOutput output) {
    if (!field.ok()) return;
    const std::string path = field.path();
    const size_t end = std::min(path.find_first_of(".["), path.size());
    const std::string spelled = spellings_.Apply(path.substr(0, end)) + path.substr(end);
    if (sampling_.structured_output) {
      return field.Fail(fmt::format("says what the answer must be, and \"{}\" does too; give one",
                                    spellings_.Apply(kField)));
    }
    sampling_.structured_output = std::move(output);
    spellings_.by_name.insert_or_assign(kField, spelled);
  }

  SamplingParams& sampling_;
  FieldSpellings& spellings_;
};

}  // namespace

void ReadStructuredOutput(const JsonReader& fields, SamplingParams& sampling,
                          FieldSpellings& spellings) {
  StructuredFields reader(sampling, spellings);
  reader.ReadResponseFormat(fields["response_format"]);
  reader.ReadStructuredOutputs(fields["structured_outputs"]);
  reader.ReadSchema(fields["guided_json"]);
  reader.ReadText(fields["guided_regex"], Kind::kRegex);
  reader.ReadChoice(fields["guided_choice"]);
  reader.ReadText(fields["guided_grammar"], Kind::kGrammar);
  reader.ReadText(fields["grammar"], Kind::kGrammar);
  reader.ReadSchema(fields["json_schema"]);
  reader.ReadWhitespace(fields["guided_whitespace_pattern"]);
}

}  // namespace tokamak
