// The table of formats.hpp.
#include "formats.hpp"

#include <tenon/error.hpp>

#include <string>

namespace tenon::quantized {
namespace {

constexpr Format kFormats[] = {
    {"bf16", false},
    {"nvfp4", true, ElementFormat::kE2M1, BlockScale::kTwoLevel, 16},
    {"nvfp4_2d", true, ElementFormat::kE2M1, BlockScale::kTwoLevel, 16, true},
    {"mxfp4", true, ElementFormat::kE2M1, BlockScale::kPower, 32},
    {"mxfp6_e2m3", true, ElementFormat::kE2M3, BlockScale::kPower, 32},
    {"mxfp6_e3m2", true, ElementFormat::kE3M2, BlockScale::kPower, 32},
    {"mxfp8_e4m3", true, ElementFormat::kE4M3, BlockScale::kPower, 32},
    {"mxfp8_e5m2", true, ElementFormat::kE5M2, BlockScale::kPower, 32},
    {"fp8_e4m3", true, ElementFormat::kE4M3, BlockScale::kTensor},
    {"fp8_e5m2", true, ElementFormat::kE5M2, BlockScale::kTensor},
    {"fp8_block", true, ElementFormat::kE4M3, BlockScale::kPower, 128},
    {"fp8_block_2d", true, ElementFormat::kE4M3, BlockScale::kPower, 128, true},
};

}  // namespace

std::span<const Format> formats() {
  return kFormats;
}

const Format& bf16_format() {
  return kFormats[0];
}

const Format& format_of(std::string_view name) {
  std::string names;
  for (const Format& format : kFormats) {
    if (format.name == name) return format;
    names += (names.empty() ? "" : ", ") + std::string(format.name);
  }
  fail_config("there is no operand format '" + std::string(name) + "'; expected one of " + names);
}

}  // namespace tenon::quantized
