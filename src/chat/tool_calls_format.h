// How model families write tool calls and reasoning in their text.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/value.h"
#include "tokamak/sampling_params.h"
#include "tokamak/status.h"

namespace tokamak {

struct ToolCall {
  std::string id;  // as the model wrote it; empty if the format has no ids
  std::string name;
  std::string arguments;  // JSON text of an object, as the model wrote it
};

// Whether models may call a tool that a request does not have by this name.
bool IsToolName(std::string_view text);
// Removes everything up to and including `mark` from `text` and returns what came before the mark;
// nullopt if there is no mark.
std::optional<std::string_view> TakeUntil(std::string_view& text, std::string_view mark);

// The names of a request's tools and the types of their parameters. Formats that write values as
// bare text need the types to tell the number 5 from the string "5". Immutable and thread-safe,
// unlike the values it is made from.
class ToolTypes {
 public:
  ToolTypes() = default;
  // Reads OpenAI's list of tools; skips entries of another form.
  explicit ToolTypes(const jinja::Value& tools);

  bool Has(std::string_view tool) const { return tools_.find(tool) != tools_.end(); }
  // Returns the JSON text of a value that was written as bare text.
  std::string ToJson(std::string_view tool, std::string_view parameter,
                     std::string_view value) const;

 private:
  // [tool][parameter]: its type in JSON Schema; empty if the schema names none.
  std::map<std::string, std::map<std::string, std::string, std::less<>>, std::less<>> tools_;
};

// How calls are written, for requests that hold them to a schema.
struct WrittenCalls {
  // One call, with {name}, {arguments} and perhaps {id}.
  std::string_view call = {};
  // Regular expression for what stands between calls; absent: an answer holds one.
  std::optional<std::string_view> separator = {};
  std::string_view begin = {}, end = {};  // around all calls
  std::string_view id = {};               // a regular expression
  // Absent: arguments are JSON.
  std::optional<StructuredOutput::Parameters> parameters = {};
};

// One family's format. A block of calls is: start, head, JSON, tail, end; or start, tags, end.
struct ToolFormat {
  std::string_view name;
  // Strings that all templates of this format contain.
  std::vector<std::string_view> in_template = {};
  std::vector<std::string_view> starts = {};   // a block begins with one of these
  std::string_view end = {};                   // and ends with this; empty: it ends with its JSON
  std::vector<std::string_view> ignored = {};  // markers around blocks; dropped from the text
  std::string_view inside = {};                // another marker, inside the head
  // The JSON follows this marker; empty: it follows white space.
  std::string_view json_after = {};
  // The JSON may also follow the start directly.
  bool json_at_once = false;
  // A block that does not begin with JSON holds a call in tags.
  bool tagged = false;
  // A { at the start of the answer also starts a block.
  bool bare = false;
  // Text is a call only if the request has a tool of this name.
  bool only_known = false;
  // Calls are Harmony messages, and none of the fields above apply.
  bool harmony = false;
  // Templates accept only ids of nine letters and digits.
  bool short_ids = false;
  WrittenCalls written = {};
  // Reads a name and an id that stand in the head. Otherwise the JSON holds them: one object like
  // {"name": ..., "arguments": ...} or a list of these.
  std::optional<ToolCall> (*in_head)(std::string_view head) = nullptr;
};

struct ReasoningFormat {
  std::string_view name;
  std::string_view open, close;
  // Reasoning is in Harmony messages, anywhere in the answer.
  bool harmony = false;
};

// All formats, the more specific ones first, as detection needs them.
std::span<const ToolFormat> ToolFormats();
std::span<const ReasoningFormat> ReasoningFormats();

// The markers of both formats, which may be special tokens. Either format may be null.
std::vector<std::string_view> MarksOf(const ToolFormat* tools, const ReasoningFormat* reasoning);

// Detects a model's format from its template's source; null if no format is recognized.
const ToolFormat* DetectToolFormat(std::string_view template_source);
const ReasoningFormat* DetectReasoningFormat(std::string_view template_source);

// Whether the prompt ends with the opening marker: the template has started the reasoning.
bool OpensReasoning(std::string_view prompt, const ReasoningFormat* format);
// The form of answers that must call one of these tools, each a name and the JSON Schema of its
// arguments, which must be objects; several times if `parallel` and the format allows it.
// kInvalidArgument for a name that no call can have.
Result<StructuredOutput> ForceCalls(const ToolFormat& format,
                                    std::span<const std::pair<std::string, std::string>> tools,
                                    bool parallel);
// The form of answers that may call these tools: free text, but after the start marker of a call
// one of them must be called. Without `parallel` the answer ends after the first call. Errors as
// above; kUnimplemented if calls begin without a marker, too. Harmony's calls are messages of their
// own: the answer is any text or a call.
Result<StructuredOutput> AllowCalls(const ToolFormat& format,
                                    std::span<const std::pair<std::string, std::string>> tools,
                                    bool parallel);
// Lets an answer of the form `output` be calls of these tools instead, several if `parallel` and
// the format allows it. Errors as for ForceCalls.
Status OrCalls(const ToolFormat& format, std::span<const std::pair<std::string, std::string>> tools,
               bool parallel, StructuredOutput& output);
// Returns the reasoning that a structured output must leave free before the answer to this prompt.
// Absent if the model does not reason, or if the template has ended the reasoning already.
std::optional<StructuredOutput::Reasoning> FreeReasoning(std::string_view prompt,
                                                         const ReasoningFormat* format);

// Gives a thinking_token_budget its marks, if the format has marks that reasoning stands between.
// `begun`: the prompt ends inside the reasoning.
void BoundThinking(const ReasoningFormat& format, bool begun, SamplingParams& sampling);

// Chooses a format by name: "auto" detects it, "none" is null. For an unknown name,
// kInvalidArgument lists the valid ones.
Result<const ToolFormat*> ChooseToolFormat(std::string_view name, std::string_view template_source);
Result<const ReasoningFormat*> ChooseReasoningFormat(std::string_view name,
                                                     std::string_view template_source);

}  // namespace tokamak
