// Header: "\x93NUMPY", major, minor, length (u16 in 1.0, u32 later), then a Python dictionary of that length
// with the keys descr, fortran_order and shape. NumPy pads it with spaces to a multiple of 64; readers need
// not care.
#include <tenon/error.hpp>
#include <tenon/sdk/npy.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>

TENON_ABI_BEGIN
namespace {

static_assert(std::endian::native == std::endian::little, "elements are read as they lie");

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::uint32_t kLongestHeader = 1 << 16;  // NumPy itself refuses more than 10,000 by default

struct Named {
  std::string_view descr;
  DType dtype;
};
constexpr Named kTypes[] = {{"<f2", DType::kF16},  {"<f4", DType::kF32}, {"<f8", DType::kF64},
                            {"<i4", DType::kI32},  {"<i8", DType::kI64}, {"|u1", DType::kU8},
                            {"|b1", DType::kBool}, {"<u1", DType::kU8},  {"<b1", DType::kBool}};

/// The first name of a type, as NumPy writes it.
std::string_view descr_of(DType dtype) {
  for (const Named& known : kTypes) {
    if (known.dtype == dtype) return known.descr;
  }
  fail_run(fmt::format(".npy files hold no {}", dtype_name(dtype)));
}

/// "<f4, <f8 or |u1"
std::string list_of(std::span<const DType> types) {
  std::string text;
  for (std::size_t i = 0; i < types.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == types.size() ? " or " : ", ", descr_of(types[i]));
  return text;
}

/// A cursor over the dictionary.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  [[noreturn]] void fail(std::string_view expected) const {
    const std::string_view here = rest_.substr(0, 24);
    std::string shown;
    for (const char c : here) shown += c >= ' ' && c <= '~' ? c : '?';
    fail_config(fmt::format("the header is not understood: expected {}, found {}", expected,
                            rest_.empty() ? "its end" : "'" + shown + "'"));
  }
  void skip_space() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t'))
      rest_.remove_prefix(1);
  }
  bool take(std::string_view word) {
    skip_space();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) fail(fmt::format("'{}'", word));
  }
  std::string text() {
    skip_space();
    const char quote = rest_.empty() ? '\0' : rest_[0];
    const std::size_t end = quote == '\'' || quote == '"' ? rest_.find(quote, 1) : std::string_view::npos;
    if (end == std::string_view::npos) fail("a text in quotes");
    std::string found(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return found;
  }
  std::int64_t extent() {
    skip_space();
    std::int64_t value = 0;
    const auto [end, code] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (code != std::errc() || value < 0) fail("an extent");
    rest_.remove_prefix(end - rest_.data());
    take("L");  // Python 2 wrote long integers so
    return value;
  }
  bool at_end() {
    skip_space();
    return rest_.empty();
  }
  bool next_is(char c) {
    skip_space();
    return !rest_.empty() && rest_[0] == c;
  }

 private:
  std::string_view rest_;
};

std::vector<std::int64_t> parse_shape(Scanner& scan) {
  std::vector<std::int64_t> shape;
  scan.expect("(");
  while (!scan.take(")")) {
    shape.push_back(scan.extent());
    if (scan.take(")")) break;
    scan.expect(",");
  }
  return shape;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

DType type_of(const NpyHeader& header, std::span<const DType> types) {
  for (const Named& known : kTypes) {
    if (known.descr == header.descr && std::find(types.begin(), types.end(), known.dtype) != types.end())
      return known.dtype;
  }
  const bool big = header.descr.starts_with('>');
  fail_config(fmt::format(
      "expected elements of type {}, found '{}'{}", list_of(types), header.descr.substr(0, 24),
      big ? "; it is big-endian: write the array again with array.astype(array.dtype.newbyteorder('<'))"
          : "; convert the array, e.g. with array.astype('float32')"));
}

/// Bytes of the elements; refuses products that no file can hold.
std::int64_t bytes_of(const NpyHeader& header, DType dtype) {
  if (header.shape.empty()) fail_config("expected an array of at least one dimension, found a scalar");
  if (header.shape.size() > static_cast<std::size_t>(kMaxRank)) {
    fail_config(
        fmt::format("expected at most {} dimensions, found shape {}", kMaxRank, shape_text(header.shape)));
  }
  std::int64_t bytes = dtype_bytes(dtype, 1);
  for (const std::int64_t extent : header.shape) {
    if (extent == 0) fail_config(fmt::format("found an empty array, of shape {}", shape_text(header.shape)));
    if (extent > std::numeric_limits<std::int64_t>::max() / bytes) {
      fail_config(fmt::format("the shape {} is larger than any file", shape_text(header.shape)));
    }
    bytes *= extent;
  }
  return bytes;
}

struct Found {
  NpyHeader header;
  std::int64_t offset = 0;
};

Found read_header(const ReadableFile& file) {
  const std::int64_t size = file.size();
  if (size == 0) fail_config("expected a .npy file, found an empty file");
  std::array<std::byte, 12> start{};
  const std::size_t at_hand = std::min<std::int64_t>(size, 12);
  file.read(0, std::span(start).first(at_hand));
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(start[i]); };
  if (std::memcmp(start.data(), kMagic.data(), std::min(at_hand, kMagic.size())) != 0) {
    const bool zip = std::memcmp(start.data(), "PK\x03\x04", std::min<std::size_t>(at_hand, 4)) == 0;
    fail_config(fmt::format(
        "expected the magic text \\x93NUMPY of a .npy file, found {}",
        zip ? "a zip archive, which .npz files are; write one array with numpy.save" : "other bytes"));
  }
  const bool first = byte(6) == 1;
  const std::size_t prefix = first ? 10 : 12;
  if (at_hand < prefix) fail_config(fmt::format("found only {} bytes; the file is cut off", size));
  if (byte(6) < 1 || byte(6) > 3 || byte(7) != 0) {
    fail_config(fmt::format("expected format version 1.0, 2.0 or 3.0, found {}.{}", byte(6), byte(7)));
  }
  std::uint32_t length = byte(8) | byte(9) << 8;
  if (!first) length |= byte(10) << 16 | byte(11) << 24;
  if (length > kLongestHeader) {
    fail_config(fmt::format("expected a header of at most {} bytes, found {}", kLongestHeader, length));
  }
  const std::int64_t offset = static_cast<std::int64_t>(prefix) + length;
  if (offset > size) {
    fail_config(fmt::format("a header of {} bytes: expected at least {} bytes, found {}; the file is cut off",
                            length, offset, size));
  }
  std::string text(length, '\0');
  file.read(static_cast<std::int64_t>(prefix), std::as_writable_bytes(std::span(text)));
  return {parse_npy_header(text), offset};
}

}  // namespace

NpyHeader parse_npy_header(std::string_view text) {
  Scanner scan(text);
  NpyHeader header;
  bool descr = false, order = false, shape = false;
  scan.expect("{");
  while (!scan.take("}")) {
    const std::string key = scan.text();
    scan.expect(":");
    if (key == "descr" && !descr) {
      descr = true;
      if (scan.next_is('[')) fail_config("expected one number type, found records with named fields");
      header.descr = scan.text();
    } else if (key == "fortran_order" && !order) {
      order = true;
      header.fortran_order = scan.take("True");
      if (!header.fortran_order && !scan.take("False")) scan.fail("True or False");
    } else if (key == "shape" && !shape) {
      shape = true;
      header.shape = parse_shape(scan);
    } else {
      fail_config(fmt::format(
          "the header has {}key '{}'; expected descr, fortran_order and shape, once each",
          key == "descr" || key == "fortran_order" || key == "shape" ? "twice the " : "the unknown ",
          key.substr(0, 24)));
    }
    if (scan.take("}")) break;
    scan.expect(",");
  }
  if (!scan.at_end()) scan.fail("spaces up to the end of the header");
  if (!descr || !order || !shape) {
    fail_config(fmt::format("the header lacks the key '{}'", !descr   ? "descr"
                                                             : !order ? "fortran_order"
                                                                      : "shape"));
  }
  return header;
}

NpyFile::NpyFile(FileSystem& files, const std::string& path, std::string_view what,
                 std::span<const DType> types)
    : path_(path) {
  try {
    file_ = files.open(path);
    const Found found = read_header(*file_);
    dtype_ = type_of(found.header, types);
    const std::int64_t bytes = bytes_of(found.header, dtype_);
    const std::vector<std::int64_t>& shape = found.header.shape;
    if (found.header.fortran_order && shape.size() > 1) {
      fail_config(
          "expected C order (rows one after the other), found Fortran order; write the array again with "
          "numpy.save(path, numpy.ascontiguousarray(array))");
    }
    offset_ = found.offset;
    const std::int64_t behind = file_->size() - offset_;
    if (behind != bytes) {
      fail_config(fmt::format("shape {} of {}: expected {} bytes after the header, found {}; the file is {}",
                              shape_text(shape), dtype_name(dtype_), bytes, behind,
                              behind < bytes ? "cut off" : "longer than it says"));
    }
    shape_ = Shape(std::span(shape));
  } catch (const FileError& error) {
    fail_config(fmt::format("{} '{}': {}", what, path, error.what()));
  } catch (const Error& error) {
    fail_config(fmt::format("{} '{}': {}", what, path, error.what()));
  }
}

void NpyFile::read(std::int64_t first, std::span<std::byte> out) const {
  file_->read(offset_ + first * dtype_bytes(dtype_, 1), out);
}

void write_npy(FileSystem& files, const std::string& path, const TensorView& array) {
  const std::string_view descr = descr_of(array.dtype);
  const std::span<const std::int64_t> extents = array.shape.extents();
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr,
                                 shape_text({extents.begin(), extents.end()}));
  text.append(63 - (10 + text.size()) % 64, ' ');  // the elements begin at a multiple of 64
  text += '\n';
  std::string header(kMagic);
  header += {'\1', '\0', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  header += text;
  const std::string partial = path + ".tmp";
  try {
    const auto file = files.create(partial);
    file->append(std::as_bytes(std::span(header)));
    file->append(array.raw());
    file->sync();
    file->close();
    files.rename(partial, path);
  } catch (...) {
    remove_tree(files, partial);
    throw;
  }
}

TENON_ABI_END
