#include "grammar/json_format.h"

#include <algorithm>
#include <array>

namespace tokamak::grammar {

namespace {

// RFC 3339, section 5.6, with the days that each month has. The year 0000 is left out, because most
// libraries for dates do not know it, and so are leap seconds.
std::string Date() {
  const std::string year = "(?:000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})";
  const std::string leap_year =
      "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)";
  return "(?:" + year + "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|" +
         "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|" + leap_year + "-02-29)";
}

std::string Time() {
  return "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]"
         "\\d)";
}

// RFC 3339, appendix A.
std::string Duration() {
  const std::string second = "\\d+S", minute = "\\d+M(?:" + second + ")?",
                    hour = "\\d+H(?:" + minute + ")?";
  const std::string time = "T(?:" + hour + "|" + minute + "|" + second + ")";
  const std::string day = "\\d+D", month = "\\d+M(?:" + day + ")?",
                    year = "\\d+Y(?:" + month + ")?";
  return "P(?:(?:" + day + "|" + month + "|" + year + ")(?:" + time + ")?|" + time + "|\\d+W)";
}

std::string Hostname() {
  const std::string label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  return label + "(?:\\." + label + ")*";
}

std::string Ipv4() {
  const std::string byte = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
  return byte + "(?:\\." + byte + "){3}";
}

// RFC 3986, section 3.2.2: at most one "::" stands for two or more groups of zeros.
std::string Ipv6() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  const std::string last = "(?:" + group + ":" + group + "|" + Ipv4() + ")";
  std::string result = "(?:(?:" + group + ":){6}" + last + "|::(?:" + group + ":){5}" + last;
  for (int before = 1; before <= 7; ++before) {
    // Up to `before` groups, "::", and what fills 8 groups with one of zeros at least.
    const std::string start =
        "(?:(?:" + group + ":){0," + std::to_string(before - 1) + "}" + group + ")?::";
    const int after = 7 - before;
    if (after >= 2) {
      result += "|" + start + "(?:" + group + ":){" + std::to_string(after - 2) + "}" + last;
    } else {
      result += "|" + start + (after == 1 ? group : "");
    }
  }
  return result + ")";
}

// RFC 3986, without IP literals in brackets.
std::string UriParts(bool relative) {
  const std::string escape = "%[0-9A-Fa-f]{2}", unreserved = "A-Za-z0-9\\-._~!$&'()*+,;=";
  const auto chars = [&](const std::string& more) {
    return "(?:[" + unreserved + more + "]|" + escape + ")";
  };
  const std::string segments = "(?:/" + chars(":@") + "*)*";
  const std::string authority =
      "//(?:" + chars(":") + "*@)?" + chars("") + "*(?::\\d*)?" + segments;
  const std::string absolute = "/(?:" + chars(":@") + "+" + segments + ")?";
  const std::string rest = "(?:\\?" + chars(":@/?") + "*)?(?:#" + chars(":@/?") + "*)?";
  const std::string uri = "[A-Za-z][A-Za-z0-9+.\\-]*:(?:" + authority + "|" + absolute + "|" +
                          chars(":@") + "+" + segments + "|)" + rest;
  if (!relative) return uri;
  return "(?:" + uri + "|(?:" + authority + "|" + absolute + "|" + chars("@") + "+" + segments +
         "|)" + rest + ")";
}

std::string Email() {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
  return atom + "(?:\\." + atom + ")*@" + Hostname();
}

std::string Pattern(std::string_view format) {
  if (format == "date") return Date();
  if (format == "time") return Time();
  if (format == "date-time") return Date() + "T" + Time();
  if (format == "duration") return Duration();
  if (format == "uuid") {
    return "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}";
  }
  if (format == "email") return Email();
  if (format == "hostname") return Hostname();
  if (format == "ipv4") return Ipv4();
  if (format == "ipv6") return Ipv6();
  if (format == "uri") return UriParts(false);
  if (format == "uri-reference") return UriParts(true);
  if (format == "json-pointer") return "(?:/(?:[^/~]|~[01])*)*";
  return "";
}

}  // namespace

std::optional<std::string> FormatPattern(std::string_view format) {
  const std::string pattern = Pattern(format);
  if (pattern.empty()) return std::nullopt;
  return "^(?:" + pattern + ")$";
}

bool IsStandardFormat(std::string_view format) {
  static constexpr std::array<std::string_view, 19> kFormats = {
      "date",          "time",         "date-time",
      "duration",      "uuid",         "email",
      "idn-email",     "hostname",     "idn-hostname",
      "ipv4",          "ipv6",         "uri",
      "uri-reference", "iri",          "iri-reference",
      "uri-template",  "json-pointer", "relative-json-pointer",
      "regex"};
  return std::find(kFormats.begin(), kFormats.end(), format) != kFormats.end();
}

}  // namespace tokamak::grammar
