#include "images/file_url.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "images/decoders.h"

namespace tokamak {
namespace {

constexpr size_t kMaxQuoted = 80;      // bytes of a client's text in a message
constexpr size_t kMaxUrlBytes = 8192;  // a path has at most 4096

// Decodes escapes ("%20"). nullopt for malformed ones, and for a zero byte.
std::optional<std::string> DecodePath(std::string_view text) {
  std::string path;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const auto byte = ParseNumber<uint8_t>(text.substr(i + 1, 2), 16);
      if (i + 2 >= text.size() || !byte) return std::nullopt;
      c = static_cast<char>(*byte);
      i += 2;
    }
    if (c == '\0') return std::nullopt;
    path += c;
  }
  return path;
}

std::string WithSlash(const std::string& path) { return path.ends_with('/') ? path : path + "/"; }

}  // namespace

bool HasScheme(std::string_view url, std::string_view scheme) {
  return EqualIgnoringCase(url.substr(0, scheme.size()), scheme) &&
         url.substr(scheme.size()).starts_with(':');
}

ImageRoot::ImageRoot(std::string path, std::string real_path, Folder folder)
    : path_(std::move(path)), real_path_(std::move(real_path)), folder_(std::move(folder)) {}

Result<std::unique_ptr<const ImageRoot>> ImageRoot::Open(const std::string& path) {
  ASSIGN_OR_RETURN(Folder folder, Folder::Open(path));
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  std::filesystem::path real;
  if (!error) real = std::filesystem::canonical(path, error);
  if (error) return Unavailable("{}: {}", path, error.message());
  return std::unique_ptr<const ImageRoot>(
      new ImageRoot(WithSlash(absolute.lexically_normal().string()), WithSlash(real.string()),
                    std::move(folder)));
}

Result<std::string> ImageRoot::Read(std::string_view url, const DecodeLimits& limits) const {
  std::string_view rest = url.substr(std::min(url.size(), std::string_view("file:").size()));
  constexpr std::string_view kHosts[] = {"//localhost/", "///"};
  for (const std::string_view host : kHosts) {
    if (!rest.starts_with(host)) continue;
    rest.remove_prefix(host.size() - 1);
    break;
  }
  const bool is_path = HasScheme(url, "file") && url.size() <= kMaxUrlBytes &&
                       rest.starts_with('/') && !rest.starts_with("//") &&
                       rest.find_first_of("?#") == rest.npos;
  const std::optional<std::string> path = is_path ? DecodePath(rest) : std::nullopt;
  if (!path) {
    return InvalidArgument(
        "must be the URL of a file by its absolute path (file:///images/cat.png), got {}",
        Quoted(url, kMaxQuoted));
  }
  const Status none = InvalidArgument("there is no such file below the folder of --image-root: {}",
                                      Quoted(url, kMaxQuoted));
  const std::string* root = nullptr;
  for (const std::string* prefix : {&path_, &real_path_}) {
    if (path->starts_with(*prefix) && path->size() > prefix->size()) root = prefix;
  }
  if (root == nullptr) return none;
  Result<File> file = folder_.OpenFile(path->substr(root->size()));
  if (file.status().code() == StatusCode::kInvalidArgument) {
    return InvalidArgument("is not a regular file: {}", Quoted(url, kMaxQuoted));
  }
  if (!file.ok()) return none;
  RETURN_IF_ERROR(CheckFileSize(file->size(), limits));
  std::string bytes(file->size(), '\0');
  if (!file->ReadAt(0, bytes.data(), bytes.size()).ok()) {
    return InvalidArgument("cannot be read: {}", Quoted(url, kMaxQuoted));
  }
  return bytes;
}

}  // namespace tokamak
