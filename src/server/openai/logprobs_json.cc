#include "server/openai/logprobs_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/json_text.h"

namespace tokamak {
namespace {

using Json = nlohmann::ordered_json;

// [element(entries[0]), ...]
template <typename Element>
std::string Array(const std::vector<LogprobEntry>& entries, Element element) {
  std::string json = "[";
  for (const LogprobEntry& entry : entries) {
    if (json.size() > 1) json += ',';
    json += DumpJson(element(entry));
  }
  return json + ']';
}

Json BytesJson(const std::string& text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<uint8_t>(c));
  return bytes;
}

// Null for the first token of a prompt.
Json Logprob(const LogprobEntry& entry) {
  return entry.has_logprob ? Json(entry.token.token.logprob) : Json(nullptr);
}

// Writes alternatives by their text. If several have the same text, takes the most likely one.
Json TopByText(const LogprobEntry& entry, TokenBytesRef bytes_of) {
  Json top = Json::object();
  for (const TokenLogprobs::Entry& other : entry.token.top) {
    std::string text = bytes_of(other.token_id);
    if (!top.contains(text)) top[std::move(text)] = other.logprob;
  }
  return top;
}

}  // namespace

std::string ChatLogprobsJson(const std::vector<LogprobEntry>& entries, TokenBytesRef bytes_of) {
  return "{\"content\":" +
         Array(entries,
               [&](const LogprobEntry& entry) {
                 Json top = Json::array();
                 for (const TokenLogprobs::Entry& other : entry.token.top) {
                   const std::string text = bytes_of(other.token_id);
                   top.push_back(
                       {{"token", text}, {"logprob", other.logprob}, {"bytes", BytesJson(text)}});
                 }
                 const std::string text = bytes_of(entry.token.token.token_id);
                 return Json{{"token", text},
                             {"logprob", Logprob(entry)},
                             {"bytes", BytesJson(text)},
                             {"top_logprobs", std::move(top)}};
               }) +
         ",\"refusal\":null}";
}

std::string CompletionLogprobsJson(const std::vector<LogprobEntry>& entries,
                                   TokenBytesRef bytes_of) {
  std::string json = "{\"tokens\":";
  json += Array(entries, [&](const LogprobEntry& entry) {
    return Json(bytes_of(entry.token.token.token_id));
  });
  json += ",\"token_logprobs\":" + Array(entries, Logprob);
  json += ",\"top_logprobs\":" + Array(entries, [&](const LogprobEntry& entry) {
            return entry.has_logprob ? TopByText(entry, bytes_of) : Json(nullptr);
          });
  json += ",\"text_offset\":" +
          Array(entries, [](const LogprobEntry& entry) { return Json(entry.text_offset); });
  return json + '}';
}

std::string PromptLogprobsJson(const std::vector<LogprobEntry>& entries, TokenBytesRef bytes_of) {
  return Array(entries, [&](const LogprobEntry& entry) {
    if (!entry.has_logprob) return Json(nullptr);
    return Json{{"token", bytes_of(entry.token.token.token_id)},
                {"logprob", Logprob(entry)},
                {"top_logprobs", TopByText(entry, bytes_of)}};
  });
}

}  // namespace tokamak
