// Elementary functions from + and × alone, in a fixed order: the same bits on every CPU, compiler
// and GPU, as long as multiply and add are not fused (-ffp-contract=off, nvcc -fmad=false).
// Sampling depends on this. constexpr, so that device code can call them.
#pragma once

#include <bit>
#include <cstdint>

namespace tokamak {

// ln x for normal x > 0. Relative error below 8e-16, even near 1, where the result is tiny.
//
// x = 2^e · (1 + f) with 1 + f in [√½, √2); ln(1 + f) = f · P(f), where P interpolates ln(1 + f) /
// f at the 19 Chebyshev nodes of that range (relative error 3.4e-16).
constexpr double ExactLog(double x) {
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  constexpr double kP[] = {
      0x1.0000000000000p+0, -0x1.ffffffffffee9p-2, 0x1.5555555555809p-2, -0x1.0000000021d88p-2,
      0x1.99999999919fap-3, -0x1.5555552eedc2ap-3, 0x1.249248fe0aaeap-3, -0x1.000009bc36855p-3,
      0x1.c71c951a2eb08p-4, -0x1.9997078eac01cp-4, 0x1.7456903f23be8p-4, -0x1.558447ee75e12p-4,
      0x1.3bb16646e15d8p-4, -0x1.22ea4afee4af9p-4, 0x1.092646c0ebbc0p-4, -0x1.03a806343966bp-4,
      0x1.227d22feca091p-4, -0x1.0e98e2f6196a3p-4, 0x1.ea1f67f905749p-6};
  // ln 2 in two parts; e times the first part is exact.
  constexpr double kLn2High = 0x1.62e42fee00000p-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const int64_t e = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
  const double f = std::bit_cast<double>(bits - (static_cast<uint64_t>(e) << 52)) - 1.0;
  double p = kP[18];
  for (int i = 17; i >= 0; --i) p = p * f + kP[i];
  const double scale = static_cast<double>(e);
  return scale * kLn2High + (f * p + scale * kLn2Low);
}

// e^y for y <= 0. Relative error below 1.5e-7; y below -80 is treated as -80.
//
// y = n · ln 2 + r with |r| <= ln 2 / 2 and a polynomial of degree 6 in r.
constexpr float ExactExp(float y) {
  constexpr float kP[] = {0x1.0p+0f,      0x1.0p+0f,      0x1.0p-1f,      0x1.555404p-3f,
                          0x1.5554acp-5f, 0x1.126fb8p-7f, 0x1.6d7544p-10f};
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.63p-1f;  // 9 bits, so that n times it is exact
  constexpr float kLn2Low = -0x1.bd0106p-13f;

  y = y > -80.0f ? y : -80.0f;
  const int32_t n = static_cast<int32_t>(y * kLog2E - 0.5f);  // rounds to nearest: y <= 0
  const float scale = static_cast<float>(n);
  const float r = (y - scale * kLn2High) - scale * kLn2Low;
  float p = kP[6];
  for (int i = 5; i >= 0; --i) p = p * r + kP[i];
  return std::bit_cast<float>(std::bit_cast<int32_t>(p) + (n << 23));
}

}  // namespace tokamak
