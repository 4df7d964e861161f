// Lists of a resolved table as vectors. (`Options` alone would be those of a study, where both are known.)
#pragma once

#include <tenon/options.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::reproduce {

inline std::vector<std::string> texts_of(const tenon::Options& options, std::string_view name) {
  const auto texts = options.texts(name);
  return {texts.begin(), texts.end()};
}

inline std::vector<std::int64_t> integers_of(const tenon::Options& options, std::string_view name) {
  const auto list = options.integers(name);
  return {list.begin(), list.end()};
}

}  // namespace tenon::reproduce
