/* carat devices: what can compute here, with its memory. */
#include "cli/devices.h"

#include <stdio.h>

#include "carat_inspect.h"
#include "cli/command.h"
#include "cli/session.h"
#include "cli/terminal.h"

static void print_device(const struct carat_device *d)
{
    char label[32];
    snprintf(label, sizeof label, "%s %d", d->backend, d->index);
    out_printf("%-8s %s, %.1f GiB, %.1f GiB free", label, d->name,
               (double)d->memory_total / (1 << 30), (double)d->memory_available / (1 << 30));
    if (d->matmul[0]) out_printf(", prompts in %s", d->matmul);
    if (d->fp16_operations > 0)
        out_printf(" (%.0f TOP/s in fp16, %.0f in int8)", d->fp16_operations / 1e12,
                   d->int8_operations / 1e12);
    out_text("\n");
}

int print_devices(const char *indent, struct carat_error *err)
{
    struct carat_device device;
    struct carat_error problem = {0};
    int status = CARAT_OK;
    for (int32_t i = 0; (status = carat_device_at(i, &device, &problem)) == CARAT_OK; i++) {
        if (i > 0) out_text(indent);
        print_device(&device);
    }
    if (status == CARAT_EUSAGE) return CARAT_OK; /* that was the last */
    *err = problem;
    return status;
}

static int print_devices_json(struct carat_error *err)
{
    char *text;
    TRY(carat_devices_json(&text, err));
    out_printf("%s\n", text);
    carat_free(text);
    return CARAT_OK;
}

int command_devices(const struct options *o)
{
    struct carat_error err = {0};
    int status = no_more_arguments(o, 0, &err);
    if (status == CARAT_OK)
        status = opt_is_set(o, OPT_JSON) ? print_devices_json(&err) : print_devices("", &err);
    return status == CARAT_OK ? 0 : report(&err);
}
