#include "server/openai/structured_fields.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "server/openai/json_fields.h"
#include "server/openai/request_limits.h"

namespace tokamak {
namespace {

using Kind = StructuredOutput::Kind;

constexpr size_t kMaxChoices = 4096;
constexpr size_t kMaxTags = 1024;
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
    if (type == "structural_tag") return GiveTags(format, format);
    if (type != "json_object") {
      return format.Fail(
          "type", "must be \"text\", \"json_object\", \"json_schema\" or \"structural_tag\"");
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
    outputs.Only({"json", "json_object", "regex", "choice", "grammar", "structural_tag",
                  "whitespace_pattern", "disable_any_whitespace", "disable_fallback",
                  "disable_additional_properties"});
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
    ReadTags(outputs["structural_tag"]);
    ReadWhitespace(outputs["whitespace_pattern"]);
    if (outputs.ok() && !sampling_.structured_output) {
      outputs.Fail(
          "must have \"json\", \"json_object\", \"regex\", \"choice\", \"grammar\" or "
          "\"structural_tag\"");
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

  // vLLM's member: a structural tag as JSON in a string, or the object itself.
  void ReadTags(const JsonReader& tags) {
    if (AsksNothing(tags)) return;
    if (!tags.is_string()) return GiveTags(tags, tags);
    const std::string text = tags.String();
    if (const Status shape = CheckJsonShape(text); !shape.ok()) {
      return tags.Fail(std::string(shape.message()));
    }
    const std::optional<JsonValue> json = JsonValue::Parse(text, {});
    if (!json) return tags.Fail("must be JSON");
    const JsonReader inner = ReadFields(*json);
    GiveTags(tags, inner);
    if (!inner.ok()) tags.Fail(std::string(inner.status().message()));
  }

  // Requires that the other fields have been read.
  void ReadWhitespace(const JsonReader& pattern) {
    if (AsksNothing(pattern)) return;
    const std::string text = pattern.String();
    if (!pattern.ok()) return;
    std::optional<StructuredOutput>& output = sampling_.structured_output;
    if (!output || (output->kind != Kind::kJsonSchema && output->kind != Kind::kJsonObject &&
                    output->kind != Kind::kTags)) {
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

  // Gives the structural tag that `tags` reads, which is the value of `field`. The engine's
  // messages name places in its own form.
  void GiveTags(const JsonReader& field, const JsonReader& tags) {
    StructuredOutput output = TagsOf(tags);
    if (!tags.ok()) return;
    const size_t size = output.tags.size();
    Give(field, std::move(output));
    if (!field.ok()) return;
    const std::string spelled = spellings_.Apply(kField);
    const bool newer = tags["format"].present();
    const auto add = [&](const std::string& place, const std::string& path) {
      spellings_.by_name.insert_or_assign(kField + place, spelled + path);
    };
    add(".triggers", newer ? ".format.triggers" : ".triggers");
    for (size_t i = 0; i < size; ++i) {
      add(fmt::format(".tags[{}].content", i),
          newer ? fmt::format(".format.tags[{}].content.json_schema", i)
                : fmt::format(".structures[{}].schema", i));
    }
  }

  // Reads a structural tag: {"structures": [{"begin", "schema", "end"}], "triggers": []}, or the
  // newer {"format": {"type": "triggered_tags", "tags": [{"begin", "content", "end"}],
  // "triggers"}}.
  static StructuredOutput TagsOf(const JsonReader& tags) {
    StructuredOutput output{.kind = Kind::kTags};
    if (!tags.is_object()) {
      tags.Bad("an object");
      return output;
    }
    const JsonReader format = tags["format"];
    const bool newer = format.present();
    const JsonReader& all = newer ? format : tags;
    if (newer) {
      tags.Only({"type", "format"});
      format.Only({"type", "triggers", "tags", "at_least_one", "stop_after_first"});
      if (format["type"].value() != "triggered_tags") {
        format.Fail("type", "must be \"triggered_tags\"");
      }
      if (format.BoolOr("at_least_one", false)) {
        format.Fail("at_least_one", "is not supported; leave it out");
      }
      output.ends_after_tag = format.BoolOr("stop_after_first", false);
    } else {
      tags.Only({"type", "triggers", "structures"});
    }
    all["triggers"].ForEach(kMaxTags, [&](const JsonReader& text) {
      output.triggers.push_back(text.String());
      if (text.ok() && output.triggers.back().empty()) text.Fail("must not be empty");
    });
    if (all.ok() && output.triggers.empty()) all.Fail("triggers", "must have at least one text");
    const JsonReader list = all[newer ? "tags" : "structures"];
    list.ForEach(kMaxTags, [&](const JsonReader& tag) { ReadTag(tag, newer, output); });
    if (all.ok() && output.tags.empty()) list.Fail("must have at least one tag");
    return output;
  }

  static void ReadTag(const JsonReader& tag, bool newer, StructuredOutput& output) {
    if (!tag.is_object()) return tag.Bad("an object");
    tag.Only({"begin", newer ? "content" : "schema", "end"});
    const JsonReader content = tag["content"];
    if (newer) content.Only({"type", "json_schema"});
    if (newer && content["type"].value() != "json_schema") {
      return content.Fail("type", "must be \"json_schema\"");
    }
    const JsonReader schema = newer ? content["json_schema"] : tag["schema"];
    if (!schema.is_object()) return schema.Bad("an object");
    const std::string begin = tag.String("begin");
    const bool triggered =
        std::any_of(output.triggers.begin(), output.triggers.end(),
                    [&](const auto& trigger) { return begin.starts_with(trigger); });
    if (tag.ok() && !triggered) tag.Fail("begin", "must start with one of the triggers");
    output.tags.push_back(
        {.begin = begin, .schema = schema.value().Dump(), .end = tag.String("end")});
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
