# cpack reads this once per generator: an archive is one folder of its name, which may be unpacked anywhere.
if(CPACK_GENERATOR STREQUAL "TGZ")
  set(CPACK_PACKAGING_INSTALL_PREFIX /)
  set(CPACK_PACKAGE_FILE_NAME ${CPACK_ARCHIVE_FILE_NAME})
  set(CPACK_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
