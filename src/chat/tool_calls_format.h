// How families of models write tool calls and reasoning into their text.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/value.h"
#include "tokamak/status.h"

namespace tokamak {

struct ToolCall {
  std::string id;  // as the model wrote it; empty where the format has none
  std::string name;
  std::string arguments;  // the text of a JSON object
};

// The names of the tools of a request, and the types of their parameters: formats that write values
// as bare text do not say whether 5 is a number. Immutable once made, unlike the values it is from.
class ToolTypes {
 public:
  ToolTypes() = default;
  // From OpenAI's list of tools; what is not of that form is left out.
  explicit ToolTypes(const jinja::Value& tools);

  bool Has(std::string_view tool) const { return tools_.find(tool) != tools_.end(); }
  // The JSON text of a value that was written as bare text.
  std::string ToJson(std::string_view tool, std::string_view parameter,
                     std::string_view value) const;

 private:
  // [tool][parameter]: its type, as JSON Schema names it; empty where that says nothing.
  std::map<std::string, std::map<std::string, std::string, std::less<>>, std::less<>> tools_;
};

// One call (or a list of calls) as it stands in the text: start, head, JSON, tail with the end; or
// start, head, end where no JSON is in it.
struct ToolBlock {
  std::string head;
  std::string json;
  std::string tail;  // without the end
};

// One family's format.
struct ToolFormat {
  std::string_view name;
  // Strings that every template of it contains.
  std::vector<std::string_view> in_template = {};
  std::vector<std::string_view> starts = {};   // a block begins with one of these
  std::string_view end = {};                   // and ends with this; empty: with its JSON
  std::vector<std::string_view> ignored = {};  // brackets around blocks, left out of the text
  std::string_view inside = {};                // another mark that the head of a block may hold
  // The JSON comes after this; empty: after white space.
  std::string_view json_after = {};
  // The JSON may also come right after the start.
  bool json_at_once = false;
  // A block that does not begin with JSON goes on to the end as tags with bare text.
  bool tagged = false;
  // A { at the beginning of the answer starts a block too.
  bool bare = false;
  // Calls are messages in Harmony: `head` has whom they go to, and nothing above counts.
  bool harmony = false;
  // Templates take ids of nine letters and digits and no others.
  bool short_ids = false;
  // The calls of a block, or nothing when it does not hold any.
  std::optional<std::vector<ToolCall>> (*parse)(const ToolBlock& block,
                                                const ToolTypes& types) = nullptr;
};

struct ReasoningFormat {
  std::string_view name;
  std::string_view open, close;
  // Reasoning is messages in Harmony, anywhere in the answer.
  bool harmony = false;
};

// Every format there is, those that are told apart by more first.
std::span<const ToolFormat> ToolFormats();
std::span<const ReasoningFormat> ReasoningFormats();

// The marks that the two look for, which may be special tokens. Either may be null.
std::vector<std::string_view> MarksOf(const ToolFormat* tools, const ReasoningFormat* reasoning);

// Finds the format of a model in its template's source; null when it says nothing known.
const ToolFormat* DetectToolFormat(std::string_view template_source);
const ReasoningFormat* DetectReasoningFormat(std::string_view template_source);

// Whether the prompt ends with the opening mark: the template has begun the model's reasoning.
bool OpensReasoning(std::string_view prompt, const ReasoningFormat* format);

// By name: "auto" detects, "none" is null. kInvalidArgument with the names that there are.
Result<const ToolFormat*> ChooseToolFormat(std::string_view name, std::string_view template_source);
Result<const ReasoningFormat*> ChooseReasoningFormat(std::string_view name,
                                                     std::string_view template_source);

}  // namespace tokamak
