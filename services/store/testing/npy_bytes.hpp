// .npy files as bytes, written here and not by the code under test.
#pragma once

#include <string>
#include <vector>

namespace tenon::testing {

/// A header as NumPy writes it: padded so that the elements begin at a multiple of 64.
inline std::string npy_header(const std::string& descr, const std::string& shape, bool fortran = false) {
  std::string text = "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") +
                     ", 'shape': " + shape + ", }";
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(text.size() & 0xFF);
  bytes += static_cast<char>(text.size() >> 8);
  return bytes + text;
}

/// A whole file of version 1.0.
template <typename T>
std::string npy(const std::string& descr, const std::string& shape, const std::vector<T>& elements) {
  return npy_header(descr, shape) +
         std::string(reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T));
}

}  // namespace tenon::testing
