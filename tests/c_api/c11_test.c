/* Every call of tailrace.h from plain C11, and the example of its first comment. Exit status 0 when all is
 * as it should be. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tailrace.h>

static int failures = 0;

static void expect(int holds, const char* what, int line) {
    if (holds) return;
    fprintf(stderr, "c11_test.c:%d: %s is wrong; last error: %s\n", line, what, tailrace_last_error());
    ++failures;
}

#define EXPECT(condition) expect((condition), #condition, __LINE__)

static void keep_message(tailrace_log_level level, const char* message, void* user) {
    (void)level;
    snprintf(user, 256, "%s", message);
}

static tailrace_options* make_options(const char* directory) {
    char path[300];
    tailrace_options* options = tailrace_options_new();
    snprintf(path, sizeof path, "%s/shared", directory);
    EXPECT(tailrace_options_set(options, "shared_dir", path) == TAILRACE_OK);
    snprintf(path, sizeof path, "%s/local", directory);
    EXPECT(tailrace_options_set(options, "local_dir", path) == TAILRACE_OK);
    snprintf(path, sizeof path, "%s/settings.toml", directory);
    FILE* file = fopen(path, "w");
    EXPECT(file != NULL && fputs("files = 2\nbuffer_bytes = \"1MiB\"\n", file) >= 0 && fclose(file) == 0);
    EXPECT(tailrace_options_load(options, path) == TAILRACE_OK);
    return options;
}

static void save_and_restore(tailrace_session* session) {
    static double field[12][10];
    int counter = 1;
    const uint64_t whole[2] = {12, 10}, origin[2] = {0, 0};
    const tailrace_array array = {.type = TAILRACE_FLOAT64,
                                  .dimensions = 2,
                                  .global_shape = whole,
                                  .offset = origin,
                                  .local_shape = whole};
    EXPECT(tailrace_rank(session) == 0 && tailrace_rank_count(session) == 1);
    EXPECT(strcmp(tailrace_setting(session, "files"), "2") == 0);
    EXPECT(tailrace_register(session, "counter", NULL, 0) == TAILRACE_OK);
    EXPECT(tailrace_update(session, "counter", &counter, sizeof counter) == TAILRACE_OK);
    EXPECT(tailrace_register_array(session, "field", field, &array) == TAILRACE_OK);
    EXPECT(tailrace_update_array(session, "field", field, &array) == TAILRACE_OK);
    EXPECT(tailrace_register(session, "extra", &counter, sizeof counter) == TAILRACE_OK);
    EXPECT(tailrace_unregister(session, "extra") == TAILRACE_OK);

    for (; counter <= 3; ++counter) {
        field[11][9] = 1.5 * counter;
        EXPECT(tailrace_save(session, (uint64_t)counter) == TAILRACE_OK);
    }
    tailrace_epoch_info info;
    EXPECT(tailrace_wait(session, 3, -1) == TAILRACE_OK && tailrace_wait_all(session, 60) == TAILRACE_OK);
    EXPECT(tailrace_epoch_state(session, 3, &info) == TAILRACE_OK && info.state == TAILRACE_STATE_COMMITTED);

    int yes = 1;
    const char* why = "";
    EXPECT(tailrace_should_save(session, &yes) == TAILRACE_OK && yes == 0);
    EXPECT(tailrace_should_stop(session, &why) == TAILRACE_OK && why == NULL);

    tailrace_epoch_info* epochs = NULL;
    size_t count = 0;
    EXPECT(tailrace_list(session, &epochs, &count) == TAILRACE_OK && count == 3 && epochs[0].epoch == 3);
    tailrace_list_free(epochs);

    uint64_t restored = 0;
    const char* names[] = {"counter"};
    EXPECT(tailrace_restore_some(session, 2, names, 1, &restored) == TAILRACE_OK && restored == 2);
    EXPECT(counter == 2 && field[11][9] == 4.5);
    EXPECT(tailrace_restore(session, TAILRACE_NEWEST, &restored) == TAILRACE_OK && restored == 3);
    EXPECT(counter == 3 && field[11][9] == 4.5);
}

static void save_and_restore_files(tailrace_session* session) {
    char path[TAILRACE_MAX_PATH_BYTES], read_back[8] = "";
    tailrace_files_info info;
    size_t count = 0;
    uint64_t restored = 0;
    EXPECT(tailrace_files_begin(session) == TAILRACE_OK);
    EXPECT(tailrace_files_route(session, "log/a.txt", path, sizeof path) == TAILRACE_OK);
    FILE* file = fopen(path, "w");
    EXPECT(file != NULL && fputs("steps", file) >= 0 && fclose(file) == 0);
    EXPECT(tailrace_files_save(session, 4, 1) == TAILRACE_OK);
    EXPECT(fopen(path, "r") == NULL);

    EXPECT(tailrace_files_restore(session, 4, TAILRACE_FILES_OF_ALL_RANKS, &restored) == TAILRACE_OK);
    EXPECT(restored == 4 && tailrace_files_count(session, 0, &count) == TAILRACE_OK && count == 1);
    EXPECT(tailrace_files_at(session, 0, 0, &info) == TAILRACE_OK && strcmp(info.name, "log/a.txt") == 0);
    EXPECT(info.bytes == 5 && info.rank == 0 && (info.rights & 0400) != 0);
    EXPECT(tailrace_files_find(session, TAILRACE_ANY_RANK, "log/a.txt", path, sizeof path) == TAILRACE_OK);
    file = fopen(path, "r");
    EXPECT(file != NULL && fgets(read_back, sizeof read_back, file) != NULL && fclose(file) == 0);
    EXPECT(strcmp(read_back, "steps") == 0);
    EXPECT(tailrace_files_release(session) == TAILRACE_OK);
}

static void read_epoch(tailrace_reader* reader, uint64_t epoch) {
    tailrace_region_info region;
    size_t count = 0;
    int counter = 0;
    double corner[4] = {0};
    const uint64_t offset[2] = {10, 8}, shape[2] = {2, 2};
    EXPECT(tailrace_reader_epoch(reader) == epoch && tailrace_reader_rank_count(reader) == 1);
    EXPECT(tailrace_reader_region_count(reader, 0, &count) == TAILRACE_OK && count == 2);
    EXPECT(tailrace_reader_region_at(reader, 0, 0, &region) == TAILRACE_OK && region.bytes > 0);
    EXPECT(tailrace_reader_region(reader, 0, "field", &region) == TAILRACE_OK && region.dimensions == 2);
    EXPECT(tailrace_reader_read(reader, 0, "counter", &counter, sizeof counter) == TAILRACE_OK);
    EXPECT(counter == (int)epoch);
    EXPECT(tailrace_reader_read_box(reader, "field", 2, offset, shape, corner, sizeof corner) == TAILRACE_OK);
    EXPECT(corner[3] == 1.5 * (double)epoch);
    tailrace_reader_close(reader);
}

int main(int argc, char** argv) {
    if (argc != 2) return 2; /* the directory to work in, which exists and is empty */
    char message[256] = "", path[300];
    tailrace_set_log(keep_message, message);
    tailrace_set_log_level(TAILRACE_LOG_WARNING);
    EXPECT(strlen(tailrace_version()) >= 5 && strcmp(tailrace_code_name(TAILRACE_OK), "ok") == 0);
    EXPECT(strcmp(tailrace_code_name((tailrace_code)99), "unknown code") == 0);
    tailrace_set_log_level((tailrace_log_level)42); /* no level: nothing changes */
    EXPECT(strcmp(tailrace_last_error(), "") == 0);

    tailrace_options* options = make_options(argv[1]);
    tailrace_session* session = NULL;
    EXPECT(tailrace_open(options, &session) == TAILRACE_OK);
    tailrace_options_free(options);
    save_and_restore(session);

    tailrace_reader* reader = NULL;
    EXPECT(tailrace_reader_open(session, TAILRACE_NEWEST, 3, TAILRACE_VERIFY, &reader) == TAILRACE_OK);
    read_epoch(reader, 2);
    save_and_restore_files(session);
    EXPECT(tailrace_close(session) == TAILRACE_OK);
    EXPECT(tailrace_save(session, 9) == TAILRACE_FAILED_STATE && strlen(tailrace_last_error()) > 0);

    snprintf(path, sizeof path, "%s/shared", argv[1]);
    EXPECT(tailrace_reader_open_directory(path, NULL, 3, &reader) == TAILRACE_OK);
    read_epoch(reader, 3);
    EXPECT(strcmp(message, "") == 0); /* nothing worth a warning has happened */
    return failures == 0 ? 0 : 1;
}
