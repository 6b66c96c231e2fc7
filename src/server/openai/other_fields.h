// Fields of OpenAI's API and of other engines that this server knows by another name or does not
// have. One table says what happens to each; docs/api.md and openapi.json repeat it, and a test
// compares all three.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json_value.h"
#include "tokamak/status.h"

namespace tokamak {

// Kinds of requests. A row of the table holds the bits of all kinds that it applies to.
enum RequestKind : unsigned {
  kChatRequest = 1,
  kCompletionRequest = 2,
  kEmbeddingRequest = 4,
  kTokenizeRequest = 8,
  kDetokenizeRequest = 16,
};

// How a field is treated. A field that is null counts as absent.
enum class FieldRule {
  kRefused,    // an error, unless its value means "off" (IsOff) or is one of `values`
  kOnly,       // an error, unless its value is one of `values`
  kIgnored,    // ignored, and reported as such unless its value means "off"
  kRenamed,    // another name of the field `text`
  kUnlimited,  // kRenamed, and -1 requests as many tokens as fit the context
  kWithin,     // an object (or off) whose fields count as fields of its parent
  kNoEffect,   // accepted with any value: it cannot change a response
};

struct OtherField {
  // "a.b" is field b of the object a; "a[].b" is field b of each object in the list a.
  std::string_view name;
  unsigned requests;  // bits of RequestKind
  FieldRule rule;
  std::string_view text;         // kRenamed: our name; kRefused, kOnly: advice or empty
  const char* values = nullptr;  // a JSON array
};

std::span<const OtherField> OtherFieldTable();

// Returns whether a value is null, false, 0, "", [] or {}. These leave any switch or list off.
bool IsOff(const JsonValue& value);

// The names that a client used for fields with another name here: {"max_tokens",
// "options.num_predict"}.
struct FieldSpellings {
  std::map<std::string, std::string, std::less<>> by_name;  // by name, or by a longer path
  std::vector<std::string> ignored;          // kIgnored fields whose value was not "off"
  bool unlimited_tokens = false;             // a kUnlimited field was -1
  std::set<std::string, std::less<>> taken;  // the table's fields, which are null in the body now

  // Returns `status` with its path as the client spelled it: the longest known part is replaced.
  Status Apply(const Status& status) const;
  std::string Apply(const std::string& name) const;
  // Returns the names of all ignored fields: those of the table, and `unknown` as the client
  // spelled them.
  std::vector<std::string> Ignored(const std::vector<std::string>& unknown) const;
};

// Sets the table's fields of a body to null, and stores the value of a renamed field under our
// name. The message of an error starts with the path of the refused field.
Result<FieldSpellings> TakeOtherFields(RequestKind request, JsonValue& body);

// Returns the ignored names for a header or the log: at most 16, in at most 512 bytes, with "?" in
// place of anything but letters, digits and "_.-[]". The last entry says how many more there are.
std::string IgnoredFieldList(const std::vector<std::string>& names);
// Returns the response headers that tell a client about ignored fields; empty if there are none.
std::vector<std::pair<std::string, std::string>> IgnoredFieldHeaders(
    const std::vector<std::string>& names);

}  // namespace tokamak
