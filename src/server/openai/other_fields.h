// Fields of OpenAI's API and of other engines that this server has by another name, or not at all.
// One table says of each what happens to it; docs/api.md and openapi.json repeat it, and a test
// compares all three.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokamak/status.h"

namespace tokamak {

// The requests that a row is about; a row has the bits of several.
enum RequestKind : unsigned {
  kChatRequest = 1,
  kCompletionRequest = 2,
  kEmbeddingRequest = 4,
  kTokenizeRequest = 8,
  kDetokenizeRequest = 16,
};

// How a field is treated that is not null. A null counts as absent, as everywhere.
enum class FieldRule {
  kRefused,    // an error, unless its value means "off" (IsOff) or is one of `values`
  kOnly,       // an error, unless its value is one of `values`
  kIgnored,    // taken, and named among the ignored fields unless its value means "off"
  kRenamed,    // another name of the field `text`
  kUnlimited,  // the same, and -1 asks for as many tokens as the context holds
  kWithin,     // an object (or off) whose fields count as if they stood beside it
  kNoEffect,   // taken, whatever it is: it cannot change an answer
};

struct OtherField {
  // "a.b" is a field of the object a, "a[].b" one of each object in the list a.
  std::string_view name;
  unsigned requests;  // of RequestKind
  FieldRule rule;
  std::string_view text;         // kRenamed: our name. kRefused, kOnly: advice, or nothing
  const char* values = nullptr;  // a JSON array
};

std::span<const OtherField> OtherFieldTable();

// null, false, 0, "", [] and {}: whatever a switch or a list means, these leave it off.
bool IsOff(const nlohmann::json& value);

// How a client spelled fields that have another name here: {"max_tokens", "options.num_predict"}.
struct FieldSpellings {
  std::map<std::string, std::string, std::less<>> by_name;
  std::vector<std::string> ignored;  // rows of kIgnored whose value was on
  bool unlimited_tokens = false;     // a kUnlimited field was -1

  // `status` with its path as the client spelled it.
  Status Apply(const Status& status) const;
  std::string Apply(const std::string& name) const;
  // The names of all fields that are ignored: those of the table, and `unknown` as the client
  // spelled them.
  std::vector<std::string> Ignored(const std::vector<std::string>& unknown) const;
};

// Takes the table's fields out of a body, and puts those that have another name here under that
// name. kInvalidArgument whose message starts with the path of a field that is refused.
Result<FieldSpellings> TakeOtherFields(RequestKind request, nlohmann::json& body);

// The names that were ignored, for a header or the log: at most 16, in at most 512 bytes, with "?"
// in place of what is no letter, digit, or one of "_.-[]". The last entry says how many more there
// are.
std::string IgnoredFieldList(const std::vector<std::string>& names);
// The response headers that tell a client of them: none where there are none.
std::vector<std::pair<std::string, std::string>> IgnoredFieldHeaders(
    const std::vector<std::string>& names);

}  // namespace tokamak
