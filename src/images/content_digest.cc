#include "images/content_digest.h"

#include <openssl/evp.h>

#include <memory>
#include <vector>

#include "base/check.h"

namespace tokamak {

ContentDigest ContentDigestOf(const PreparedImage& image) {
  std::vector<int32_t> numbers = {image.image_height, image.image_width, image.grid_height,
                                  image.grid_width};
  numbers.insert(numbers.end(), image.shape.begin(), image.shape.end());
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                     EVP_MD_CTX_free);
  ContentDigest id = {};
  // The shape says how many values follow, so no two images hash the same bytes.
  const bool ok =
      hash != nullptr && EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1 &&
      EVP_DigestUpdate(hash.get(), numbers.data(), numbers.size() * sizeof(int32_t)) == 1 &&
      EVP_DigestUpdate(hash.get(), image.values.data(), image.values.size() * sizeof(float)) == 1 &&
      EVP_DigestFinal_ex(hash.get(), id.data(), nullptr) == 1;
  CHECK(ok);
  return id;
}

}  // namespace tokamak
