// Files of NumPy, the format byte by byte, and the full text of every refusal.
#include "reference/recorded.hpp"
#include "store/testing/npy_bytes.hpp"

#include <tenon/sdk/npy.hpp>
#include <tenon/testing/folders.hpp>

#include <cstring>
#include <random>

namespace tenon {
namespace {

using testing::error_of;
using testing::npy;
using testing::npy_header;

constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kU8, DType::kBool};

class NpyFileTest : public testing::FolderTest {
 protected:
  NpyFile open(const std::string& path) const { return {*files_, path, "data file", kTypes}; }

  std::unique_ptr<FileSystem> files_ = make_posix_files();
};

std::vector<double> doubles(const NpyFile& file) {
  std::vector<std::byte> raw(dtype_bytes(file.dtype(), file.samples() * file.elements_per_sample()));
  file.read(0, raw);
  return testing::to_doubles(file.dtype() == DType::kBool ? DType::kU8 : file.dtype(), raw);
}

TEST_F(NpyFileTest, ReadsWhatNumPyWrote) {
  const testing::Recorded reference("data_formats");
  const std::pair<const char*, DType> cases[] = {{"f4", DType::kF32}, {"f8", DType::kF64},
                                                 {"i4", DType::kI32}, {"i8", DType::kI64},
                                                 {"u1", DType::kU8},  {"bool", DType::kBool}};
  for (const auto& [name, dtype] : cases) {
    std::string bytes;
    for (const double byte : reference.values(std::string("npy.") + name + ".file")) {
      bytes += static_cast<char>(static_cast<unsigned char>(byte));
    }
    const NpyFile file = open(write("a.npy", bytes));
    EXPECT_EQ(file.dtype(), dtype) << name;
    const std::string values = std::string("npy.") + name + ".values";
    const Shape shape = reference.shape(values);
    EXPECT_EQ(file.samples(), shape[0]) << name;
    EXPECT_EQ(file.sample_shape(), Shape(shape.extents().subspan(1))) << name;
    EXPECT_EQ(doubles(file), reference.values(values)) << name;
  }
}

TEST_F(NpyFileTest, HeaderOfTheFormatsNoteByteForByte) {
  // float32 (2, 3): header length 118, 128 bytes before the elements.
  const std::string header = npy_header("<f4", "(2, 3)");
  ASSERT_EQ(header.size(), 128u);
  EXPECT_EQ(static_cast<unsigned char>(header[8]), 118);
  EXPECT_EQ(header.substr(0, 70), std::string("\x93NUMPY\x01\x00\x76\x00", 10) +
                                      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" + " ");
  const NpyFile file = open(write("a.npy", npy<float>("<f4", "(2, 3)", {1, 2, 3, 4, 5, 6})));
  EXPECT_EQ(doubles(file), (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

TEST(NpyHeaderTest, AcceptsWhatIsAllowed) {
  struct Case {
    const char* text;
    std::vector<std::int64_t> shape;
    bool fortran;
  } const cases[] = {
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", {2, 3}, false},
      {"{'shape': (7,), 'descr': '<f4', 'fortran_order': True}", {7}, true},
      {"{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":()}  \n", {}, false},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (10L, 2L), }", {10, 2}, false},
  };
  for (const Case& c : cases) {
    const NpyHeader header = parse_npy_header(c.text);
    EXPECT_EQ(header.descr, "<f4") << c.text;
    EXPECT_EQ(header.shape, c.shape) << c.text;
    EXPECT_EQ(header.fortran_order, c.fortran) << c.text;
  }
}

TEST_F(NpyFileTest, RefusalsAreWholeMessages) {
  const std::string good = npy<float>("<f4", "(2, 3)", {1, 2, 3, 4, 5, 6});
  const auto dictionary = [](const std::string& text) {
    return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(text.size()) + '\0' + text;
  };
  std::string version = good;
  version[6] = 4;
  const std::string huge("\x93NUMPY\x02\x00\xFF\xFF\xFF\xFF", 12);
  struct Case {
    std::string bytes;
    const char* message;
  } const cases[] = {
      {"", "expected a .npy file, found an empty file"},
      {"PK\x03\x04zip!",
       "expected the magic text \\x93NUMPY of a .npy file, found a zip archive, which .npz files are; write "
       "one "
       "array with numpy.save"},
      {"\x80\x04pickle", "expected the magic text \\x93NUMPY of a .npy file, found other bytes"},
      {npy_header("<f2", "(3,)") + std::string(6, '\0'),
       "expected elements of type <f4, <f8, <i4, <i8, |u1 or |b1, found '<f2'; convert the array, e.g. with "
       "array.astype('float32')"},
      {"\x93NUM", "found only 4 bytes; the file is cut off"},
      {version, "expected format version 1.0, 2.0 or 3.0, found 4.0"},
      {huge, "expected a header of at most 65536 bytes, found 4294967295"},
      {good.substr(0, 100),
       "a header of 118 bytes: expected at least 128 bytes, found 100; the file is cut off"},
      {good.substr(0, 150),
       "shape (2, 3) of f32: expected 24 bytes after the header, found 22; the file is cut off"},
      {good + "xx",
       "shape (2, 3) of f32: expected 24 bytes after the header, found 26; the file is longer than it says"},
      {npy_header(">f4", "(2, 3)") + std::string(24, '\0'),
       "expected elements of type <f4, <f8, <i4, <i8, |u1 or |b1, found '>f4'; it is big-endian: write the "
       "array "
       "again with array.astype(array.dtype.newbyteorder('<'))"},
      {npy_header("<c8", "(3,)") + std::string(24, '\0'),
       "expected elements of type <f4, <f8, <i4, <i8, |u1 or |b1, found '<c8'; convert the array, e.g. with "
       "array.astype('float32')"},
      {npy_header("|O", "(3,)") + std::string(24, '\0'),
       "expected elements of type <f4, <f8, <i4, <i8, |u1 or |b1, found '|O'; convert the array, e.g. with "
       "array.astype('float32')"},
      {npy_header("<f4", "(2, 3)", true) + std::string(24, '\0'),
       "expected C order (rows one after the other), found Fortran order; write the array again with "
       "numpy.save(path, numpy.ascontiguousarray(array))"},
      {npy_header("<f4", "()") + std::string(4, '\0'),
       "expected an array of at least one dimension, found a scalar"},
      {npy_header("<f4", "(0, 3)"), "found an empty array, of shape (0, 3)"},
      {npy_header("|u1", "(1, 1, 1, 1, 1, 1, 1, 1, 1)") + "x",
       "expected at most 8 dimensions, found shape (1, 1, 1, 1, 1, 1, 1, 1, 1)"},
      {npy_header("<f8", "(4611686018427387904, 4)"),
       "the shape (4611686018427387904, 4) is larger than any file"},
      {dictionary("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }"),
       "expected one number type, found records with named fields"},
      {dictionary("{'descr': '<f4', 'shape': (2,), }"), "the header lacks the key 'fortran_order'"},
      {dictionary("{'descr': '<f4', 'descr': '<f4'}"),
       "the header has twice the key 'descr'; expected descr, fortran_order and shape, once each"},
      {dictionary("{'order': 'C'}"),
       "the header has the unknown key 'order'; expected descr, fortran_order and shape, once each"},
      {dictionary("{'descr': '<f4', 'fortran_order': 0}"),
       "the header is not understood: expected True or False, found '0}'"},
      {dictionary("{'shape': (-1,)}"), "the header is not understood: expected an extent, found '-1,)}'"},
      {dictionary("{'shape': (99999999999999999999,)}"),
       "the header is not understood: expected an extent, found '99999999999999999999,)}'"},
      {dictionary("{'shape': (2"), "the header is not understood: expected ',', found its end"},
      {dictionary("not a dictionary"),
       "the header is not understood: expected '{', found 'not a dictionary'"},
  };
  for (const Case& c : cases) {
    const std::string path = write("a.npy", c.bytes);
    EXPECT_EQ(error_of([&] { open(path); }), "data file '" + path + "': " + c.message);
  }
  EXPECT_EQ(error_of([&] { open(folder_ + "/absent"); }), "data file '" + folder_ + "/absent': cannot open " +
                                                              folder_ + "/absent: No such file or directory");
  EXPECT_EQ(error_of([&] { open(folder_); }),
            "data file '" + folder_ + "': cannot read " + folder_ + ": Is a directory");
}

TEST_F(NpyFileTest, WritesWhatNumPyWouldWrite) {
  std::vector<float> values{1, -2, 3.5F, 0, 5, 6};
  const std::string path = folder_ + "/w.npy";
  write_npy(*files_, path, {values.data(), {2, 3}, DType::kF32, MemorySpace::kHost});
  EXPECT_EQ(read_text(*files_, path, 1000), npy<float>("<f4", "(2, 3)", values));
  std::vector<unsigned char> codes{7, 8, 255};
  write_npy(*files_, path, {codes.data(), {3}, DType::kU8, MemorySpace::kHost});
  EXPECT_EQ(read_text(*files_, path, 1000), npy<unsigned char>("|u1", "(3,)", codes));
  write_npy(*files_, path, {values.data(), {}, DType::kF32, MemorySpace::kHost});
  EXPECT_EQ(read_text(*files_, path, 1000), npy<float>("<f4", "()", {1.0F}));
  EXPECT_EQ(files_->list(folder_).size(), 1u) << "nothing is left beside it";
  EXPECT_THROW(write_npy(*files_, path, {values.data(), {2}, DType::kBF16, MemorySpace::kHost}), Error);
}

TEST_F(NpyFileTest, TypesAreTheReadersChoice) {
  const DType halves[] = {DType::kF16};
  const std::string path = write("h.npy", npy_header("<f2", "(2,)") + std::string("\0\x3C\0\xC0", 4));
  const NpyFile file(*files_, path, "matrix", halves);
  EXPECT_EQ(file.dtype(), DType::kF16);
  EXPECT_EQ(file.shape(), Shape{2});
  EXPECT_EQ(
      error_of([&] { NpyFile(*files_, write("f.npy", npy<float>("<f4", "(1,)", {1})), "matrix", halves); }),
      "matrix '" + folder_ +
          "/f.npy': expected elements of type <f2, found '<f4'; convert the array, e.g. with "
          "array.astype('float32')");
}

TEST_F(NpyFileTest, AFileThatShrinksIsAnErrorAndNoCrash) {
  const std::string path = write("a.npy", npy<float>("<f4", "(2, 3)", {1, 2, 3, 4, 5, 6}));
  const NpyFile file = open(path);
  std::filesystem::resize_file(path, 130);
  std::vector<std::byte> out(24);
  try {
    file.read(0, out);
    FAIL() << "no error";
  } catch (const FileError& error) {
    EXPECT_EQ(error.what(), path + " ends at byte 130; 22 more bytes were expected");
  }
}

TEST_F(NpyFileTest, MutatedFilesAreReadOrRefused) {
  const std::string whole = npy<std::int32_t>("<i4", "(4, 2)", {1, 2, 3, 4, 5, 6, 7, 8});
  std::mt19937 random(11);
  int refused = 0, read = 0;
  for (int round = 0; round < 600; ++round) {
    std::string bytes = whole;
    if (random() % 3 == 0) bytes.resize(random() % (whole.size() + 1));
    for (int flips = static_cast<int>(random() % 3); flips > 0 && !bytes.empty(); --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    try {
      read += doubles(open(write("m.npy", bytes))).empty() ? 0 : 1;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace tenon
