# The engine again with pages of 32 positions, for tests: the fixtures' texts and windows then fill
# several pages. Without CUDA, whose kernels are compiled for one size alone.
get_target_property(small_pages_sources carat_engine SOURCES)
list(FILTER small_pages_sources EXCLUDE REGEX "src/backend/cuda/")
add_library(carat_engine_small_pages STATIC EXCLUDE_FROM_ALL
            ${small_pages_sources} src/backend/cuda/absent.c)
target_compile_definitions(carat_engine_small_pages PUBLIC KV_PAGE=32)
target_include_directories(carat_engine_small_pages PUBLIC include src)
target_link_libraries(carat_engine_small_pages PUBLIC m Threads::Threads)
if(CARAT_JSON_FOUND)
    target_link_libraries(carat_engine_small_pages PUBLIC PkgConfig::CARAT_JSON_LIB)
    target_compile_definitions(carat_engine_small_pages PUBLIC CARAT_HAVE_JSON=1)
endif()
