#include "images/content_digest.h"

#include <openssl/evp.h>

#include <memory>
#include <vector>

#include "base/check.h"

namespace tokamak {
namespace {

template <typename Number>
std::string_view BytesOf(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

}  // namespace

ContentDigest Sha256(std::initializer_list<std::string_view> parts) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                     EVP_MD_CTX_free);
  bool ok = hash != nullptr && EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1;
  for (const std::string_view part : parts) {
    ok = ok && EVP_DigestUpdate(hash.get(), part.data(), part.size()) == 1;
  }
  ContentDigest digest = {};
  ok = ok && EVP_DigestFinal_ex(hash.get(), digest.data(), nullptr) == 1;
  CHECK(ok);
  return digest;
}

ContentDigest ContentDigestOf(const PreparedImage& image) {
  std::vector<int32_t> numbers = {image.image_height, image.image_width, image.grid_height,
                                  image.grid_width};
  numbers.insert(numbers.end(), image.shape.begin(), image.shape.end());
  // The shape says how many values follow, so no two images hash the same bytes.
  return Sha256({BytesOf(numbers), BytesOf(image.values)});
}

}  // namespace tokamak
