// Pieces of text. Letters are those of ASCII.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tokamak {

inline constexpr std::string_view kWhiteSpace = " \t\r\n";
inline bool IsWhiteSpace(char c) { return kWhiteSpace.find(c) != std::string_view::npos; }
// Returns the text without white space at its ends.
std::string_view Trim(std::string_view text);
// Splits at each separator; an empty text is one empty piece.
std::vector<std::string_view> Split(std::string_view text, char separator);
std::string Lower(std::string_view text);
bool EqualIgnoringCase(std::string_view a, std::string_view b);

// Parses the whole text as a number; nullopt if it is not one. `base` is for integers.
template <typename Number, typename... Base>
std::optional<Number> ParseNumber(std::string_view text, Base... base) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, number, base...);
  return error == std::errc() && parsed == end ? std::optional(number) : std::nullopt;
}

}  // namespace tokamak
