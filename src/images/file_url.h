// Images in files of this machine, which clients name: file: URLs (RFC 8089).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "images/decode.h"
#include "tokamak/status.h"

namespace tokamak {

// Whether a URL has this scheme ("file"), in upper or lower case.
bool HasScheme(std::string_view url, std::string_view scheme);

// The folder below which clients may name files. Thread-safe.
class ImageRoot {
 public:
  // kNotFound or kUnavailable if the folder cannot be opened; kUnimplemented as Folder::Open.
  static Result<std::unique_ptr<const ImageRoot>> Open(const std::string& path);

  // Returns the bytes of "file:///FOLDER/cat.png", where FOLDER is the absolute path of the folder,
  // as Open got it or with its symbolic links resolved. kInvalidArgument for anything but a regular
  // file below the folder, with one message for all paths that there are not, so that nobody learns
  // what is outside. kResourceExhausted for more than limits.max_bytes.
  Result<std::string> Read(std::string_view url, const DecodeLimits& limits = {}) const;

 private:
  ImageRoot(std::string path, std::string real_path, Folder folder);

  const std::string path_, real_path_;  // absolute, with a slash at the end
  const Folder folder_;
};

}  // namespace tokamak
