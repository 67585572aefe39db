/* SPDX-License-Identifier: Apache-2.0
 *
 * Markup of the page: escaped text, pictures in the page itself, its style.
 * Called by the other files here. Read page.h before. */
#include <string.h>

#include "codec.h"
#include "page.h"
#include "utf8.h"

static void put(loong_text_t *html, const char *text)
{
    loongi_text_append(html, text, strlen(text));
}

/* NULL: the byte is itself. */
static const char *entity_of(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    case 0x7f:
        return "\xE2\x90\xA1"; /* U+2421 */
    default:
        return NULL;
    }
}

void loongi_html_escape(loong_text_t *html, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length;) {
        int bad = 1;
        int n = loongi_utf8_check(bytes + i, length - i, &bad);
        const char *entity = entity_of(bytes[i]);
        if (n == 0) {
            put(html, "\xEF\xBF\xBD"); /* U+FFFD */
        } else if (entity != NULL) {
            put(html, entity);
        } else if ((unsigned char)bytes[i] < 0x20) { /* from U+2400 on */
            const char control[] = {'\xE2', '\x90', (char)(0x80 + bytes[i])};
            loongi_text_append(html, control, sizeof(control));
        } else {
            loongi_text_append(html, bytes + i, (size_t)n);
        }
        i += (size_t)(n > 0 ? n : bad);
    }
}

void loongi_html_text(loong_text_t *html, const char *text)
{
    loongi_html_escape(html, text, strlen(text));
}

/* RFC 4648. */
static void put_base64(loong_text_t *html, const char *bytes, size_t length)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < length; i += 3) {
        uint32_t three = 0;
        for (size_t k = 0; k < 3; k++) {
            uint8_t byte = i + k < length ? (uint8_t)bytes[i + k] : 0;
            three = three << 8 | byte;
        }
        char four[4] = {letters[three >> 18], letters[three >> 12 & 63],
                        i + 1 < length ? letters[three >> 6 & 63] : '=',
                        i + 2 < length ? letters[three & 63] : '='};
        loongi_text_append(html, four, sizeof(four));
    }
}

loong_status_t loongi_html_image(loong_text_t *html, const loong_image_t *image)
{
    loong_text_t png = loongi_text_begin(html->ctx);
    loong_status_t status = loongi_png_write(html->ctx, image, &png);
    if (status == LOONG_OK) {
        loongi_text_printf(html,
                           "<img width=\"%lld\" height=\"%lld\" alt=\"\" "
                           "src=\"data:image/png;base64,",
                           (long long)image->width, (long long)image->height);
        put_base64(html, png.data, png.length);
        put(html, "\">");
    }
    loongi_text_free(&png);
    return status;
}

static const char style[] =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:1em auto;"
    "padding:0 1em;color:#222;background:#fff}"
    "h1{font-size:1.4em}h2{font-size:1.1em;border-top:2px solid #888;"
    "padding-top:.6em;margin-top:2em}"
    "h3{font-size:.85em;margin:.2em 0;color:#666;font-weight:normal}"
    "pre,.text{white-space:pre-wrap;overflow-wrap:anywhere;"
    "font-family:ui-monospace,monospace;font-size:13px}"
    ".segment{border-left:4px solid #9ab;padding-left:.8em;margin:.6em 0}"
    ".padding{border-color:#ddd;color:#999}"
    ".t:nth-of-type(even){background:#f2f2f2}"
    ".l{color:#06712c;background:#dff5e3}"
    ".l:nth-of-type(even){background:#c8ecd0}"
    ".t:hover{outline:1px solid #06c}"
    ".p{background:#e3ecff;color:#123a8c;border-radius:4px;padding:0 .4em;"
    "text-decoration:none}"
    "figure{margin:1em 0}figcaption{font-size:.85em;color:#444}"
    ".seen{position:relative;display:inline-block;margin:.3em .6em .3em 0;"
    "vertical-align:top}"
    ".seen img{display:block;width:100%;height:auto;"
    "image-rendering:pixelated}"
    ".seen svg{position:absolute;inset:0;width:100%;height:100%}"
    "svg *{vector-effect:non-scaling-stroke;fill:none}"
    "svg .patch{stroke:#fff8;stroke-width:.5}"
    "svg .window{stroke:#fc0;stroke-width:2}"
    "svg .m{stroke:#000a;stroke-width:1;pointer-events:all}"
    "svg .m:hover{stroke:#06f;stroke-width:3}"
    "svg .k{fill:#888c}"
    "table{border-collapse:collapse;font-size:.85em}"
    "td,th{padding:.1em .8em .1em 0;text-align:left}"
    "body:has(#grid:not(:checked)) svg *{stroke:none}";

void loongi_html_begin(loong_text_t *html, const char *title)
{
    put(html, "<!DOCTYPE html>\n<html lang=\"en\"><head>"
              "<meta charset=\"utf-8\"><title>");
    loongi_html_text(html, title);
    put(html, "</title><style>");
    put(html, style);
    put(html, "</style></head>\n<body><h1>");
    loongi_html_text(html, title);
    put(html, "</h1>\n");
}

void loongi_html_end(loong_text_t *html)
{
    put(html, "</body></html>\n");
}
