// IDX files byte by byte, and the full text of every error.
#include "test_support.hpp"

#include <random>

namespace tenon::mnist {
namespace {

using IdxTest = FileTest;

TEST_F(IdxTest, ReadsTheFormatByteForByte) {
  // Two images of 2 x 3: written out by hand after the format's description, extents big-endian.
  const std::string bytes(
      "\x00\x00\x08\x03"
      "\x00\x00\x00\x02"
      "\x00\x00\x00\x02"
      "\x00\x00\x00\x03"
      "\x00\x01\x02\x03\x04\x05"
      "\xFF\xFE\xFD\xFC\xFB\xFA",
      28);
  for (const std::string& path : {write("images", bytes), write_gzip("images.gz", bytes)}) {
    const IdxArray array = read_idx(path, 3, "images");
    EXPECT_EQ(array.extents, (std::vector<std::int64_t>{2, 2, 3})) << path;
    EXPECT_EQ(array.bytes, (std::vector<std::uint8_t>{0, 1, 2, 3, 4, 5, 255, 254, 253, 252, 251, 250}))
        << path;
  }
  const std::string labels(
      "\x00\x00\x08\x01"
      "\x00\x00\x00\x03"
      "\x07\x02\x01",
      11);
  const IdxArray array = read_idx(write("labels", labels), 1, "labels");
  EXPECT_EQ(array.extents, (std::vector<std::int64_t>{3}));
  EXPECT_EQ(array.bytes, (std::vector<std::uint8_t>{7, 2, 1}));
}

TEST_F(IdxTest, RefusalsAreWholeMessages) {
  const std::string good = idx({2, 2, 3}, std::string(12, 'p')), labels = idx({3}, "abc");
  std::string floats = good;
  floats[2] = '\x0D';
  struct Case {
    std::string bytes;
    const char* message;
  } const cases[] = {
      {"", "expected an IDX file of images, found an empty file"},
      {"\x89PNG....", "expected an IDX file of images, magic number 0x00000803; found 0x89504e47"},
      {labels,
       "expected an IDX file of images, magic number 0x00000803; found 0x00000801 (a file of labels)"},
      {floats, "expected an IDX file of images, magic number 0x00000803; found 0x00000d03 (real numbers)"},
      {good.substr(0, 3), "expected an IDX header of 16 bytes, found 3 bytes; the file is cut off"},
      {good.substr(0, 15), "expected an IDX header of 16 bytes, found 15 bytes; the file is cut off"},
      {good.substr(0, 27),
       "the header says 2 x 2 x 3 images, 12 bytes; found 11 bytes after it; the file is cut off"},
      {good + "x",
       "the header says 2 x 2 x 3 images, 12 bytes; found more after them; the file is longer than it says"},
      {idx({2, 0, 3}, ""),
       "the header says 2 x 0 x 3 images; expected at least one and at most 2^36 bytes of them"},
      {idx({0xFFFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFu}, "abc"),
       "the header says 4294967295 x 4294967295 x 4294967295 images; expected at least one and at most 2^36 "
       "bytes of them"},
      // A header that claims 64 GiB costs no memory.
      {idx({1u << 20, 1u << 8, 1u << 8}, "abc"),
       "the header says 1048576 x 256 x 256 images, 68719476736 bytes; found 3 bytes after it; the file is "
       "cut off"},
  };
  for (const Case& c : cases) {
    for (const std::string& path : {write("file", c.bytes), write_gzip("file.gz", c.bytes)}) {
      EXPECT_EQ(error_of([&] { read_idx(path, 3, "images"); }), "data file '" + path + "': " + c.message);
    }
  }
  EXPECT_EQ(error_of([&] { read_idx(folder_ + "/absent", 1, "labels"); }),
            "data file '" + folder_ + "/absent': cannot open it: No such file or directory");
  EXPECT_EQ(error_of([&] { read_idx(folder_, 1, "labels"); }),
            "data file '" + folder_ + "': expected an IDX file, found a folder");
}

TEST_F(IdxTest, DamagedGzipIsSaid) {
  std::string noise(5000, '\0');
  std::mt19937 random(3);
  for (char& byte : noise) byte = static_cast<char>(random());
  const std::string path = write_gzip("images.gz", idx({5, 20, 50}, noise));
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  std::string flipped = whole;
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 0x40);
  const std::string cut = write("cut.gz", whole.substr(0, whole.size() / 2)), bad = write("bad.gz", flipped);
  EXPECT_EQ(error_of([&] { read_idx(cut, 3, "images"); }),
            "data file '" + cut + "': the gzip stream is cut off");
  EXPECT_EQ(error_of([&] { read_idx(bad, 3, "images"); }),
            "data file '" + bad + "': the gzip stream is damaged: incorrect data check");
}

TEST_F(IdxTest, MutatedFilesAreReadOrRefused) {
  const std::string whole = idx({3, 4, 5}, std::string(60, 'p'));
  std::mt19937 random(7);
  int refused = 0, read = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = whole;
    if (random() % 2 == 0) bytes.resize(random() % (whole.size() + 1));
    for (int flips = static_cast<int>(random() % 3); flips > 0 && !bytes.empty(); --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const std::string path = round % 2 == 0 ? write("m", bytes) : write_gzip("m.gz", bytes);
    try {
      const IdxArray array = read_idx(path, 3, "images");
      EXPECT_EQ(static_cast<std::int64_t>(array.bytes.size()),
                array.extents[0] * array.extents[1] * array.extents[2]);
      ++read;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(read, 50);
}

}  // namespace
}  // namespace tenon::mnist
