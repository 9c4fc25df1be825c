// Mantine's theme: sizes and defaults of components, and Mantine's own colour variables in both colour schemes. app.css has the colours of
// the console.

import { type CSSVariablesResolver, createTheme, type MantineColorsTuple, rem } from '@mantine/core'

const mill: MantineColorsTuple = [
  '#e6f7fa',
  '#d2ecf1',
  '#a6d8e2',
  '#76c3d2',
  '#4fb1c4',
  '#36a6bc',
  '#1f93aa',
  '#0b7285',
  '#075f70',
  '#024a58',
]

const dark: MantineColorsTuple = [
  '#d5dde0',
  '#aebabf',
  '#8b999f',
  '#637177',
  '#38444a',
  '#2a343a',
  '#1d262b',
  '#151c20',
  '#10161a',
  '#0b1013',
]

const panel = { backgroundColor: 'var(--panel)' }

export const theme = createTheme({
  primaryColor: 'mill',
  primaryShade: { light: 7, dark: 7 },
  colors: { mill, dark },
  fontFamily: "'Inter Variable', system-ui, sans-serif",
  fontFamilyMonospace: "'JetBrains Mono Variable', ui-monospace, monospace",
  defaultRadius: rem(8),
  cursorType: 'pointer',
  // Three sizes for text.
  fontSizes: { xs: rem(12), sm: rem(14), md: rem(14), lg: rem(18), xl: rem(18) },
  headings: {
    fontWeight: '600',
    sizes: {
      h1: { fontSize: rem(22), lineHeight: '1.3' },
      h2: { fontSize: rem(16), lineHeight: '1.4' },
      h3: { fontSize: rem(14), lineHeight: '1.5' },
    },
  },
  components: {
    Button: { defaultProps: { size: 'sm' } },
    TextInput: { defaultProps: { size: 'sm' } },
    // Too small for a finger, and without a name. The arrow keys do the same.
    NumberInput: { defaultProps: { hideControls: true } },
    InputWrapper: {
      styles: {
        label: { marginBottom: rem(4) },
        description: { lineHeight: 1.4, marginBottom: rem(2) },
      },
    },
    Alert: { styles: { message: { color: 'var(--text)' } } },
    Table: {
      styles: { th: { color: 'var(--soft)', fontSize: rem(12), fontWeight: 400 } },
    },
    // The primary colour is that of filled buttons, and dim as a thin line on a dark page.
    Tabs: { vars: () => ({ root: { '--tabs-color': 'var(--c1)' } }) },
    Loader: { defaultProps: { color: 'var(--c1)' } },
    Switch: { styles: { description: { lineHeight: 1.4 } } },
    Checkbox: { styles: { description: { lineHeight: 1.4 } } },
    Drawer: {
      defaultProps: {
        position: 'right',
        size: 480,
        padding: 'lg',
        overlayProps: { backgroundOpacity: 0.3 },
        closeButtonProps: { 'aria-label': 'Close' },
      },
      styles: {
        title: { fontWeight: 600, fontSize: rem(16), lineHeight: 1.4, overflowWrap: 'anywhere' },
        content: panel,
        header: panel,
      },
    },
    Notification: { defaultProps: { closeButtonProps: { 'aria-label': 'Dismiss' } } },
    Tooltip: { defaultProps: { withArrow: true, openDelay: 300, multiline: true, maw: 320 } },
    Modal: {
      defaultProps: {
        centered: true,
        overlayProps: { backgroundOpacity: 0.3 },
        closeButtonProps: { 'aria-label': 'Close' },
      },
      styles: {
        title: { fontWeight: 600, fontSize: rem(16), lineHeight: 1.4, overflowWrap: 'anywhere' },
        content: panel,
        header: panel,
      },
    },
  },
})

// The colours of app.css, where Mantine has names of its own for them.
const own = {
  '--mantine-color-body': 'var(--page)',
  '--mantine-color-text': 'var(--text)',
  '--mantine-color-dimmed': 'var(--soft)',
  '--mantine-color-placeholder': 'var(--soft)',
  '--mantine-color-default-border': 'var(--line)',
  '--mantine-color-error': 'var(--bad)',
  '--mantine-color-default': 'var(--panel)',
  '--mantine-color-default-color': 'var(--text)',
  // White on Mantine's own red has a contrast of 3.8; AA asks for 4.5.
  '--mantine-color-red-filled': '#c92a2a',
  '--mantine-color-red-filled-hover': '#b02525',
  // The text of a disabled button must be readable, too.
  '--mantine-color-disabled-color': 'var(--soft)',
}

// Mantine's light variants are loud on a dark page, and links in them had too little contrast.
const calm = {
  '--mantine-color-red-light': '#3a1a1c',
  '--mantine-color-red-light-hover': '#472123',
  '--mantine-color-red-light-color': '#ff9c94',
  '--mantine-color-orange-light': '#38240f',
  '--mantine-color-orange-light-hover': '#442c13',
  '--mantine-color-orange-light-color': '#f0b56b',
  '--mantine-color-green-light': '#12301f',
  '--mantine-color-green-light-hover': '#183c28',
  '--mantine-color-green-light-color': '#6fd69c',
}

// Mantine's own orange and red fill a panel with a loud surface. Its green text has a contrast of 3.8; AA asks for 4.5.
const soft = {
  '--mantine-color-green-light': '#e3f5e9',
  '--mantine-color-green-light-hover': '#d0eddb',
  '--mantine-color-green-light-color': '#17643a',
  '--mantine-color-red-light': '#fdecec',
  '--mantine-color-red-light-hover': '#fbdcdc',
  '--mantine-color-red-light-color': '#b02525',
  '--mantine-color-orange-light': '#fdf3e4',
  '--mantine-color-orange-light-hover': '#fae8cf',
  '--mantine-color-orange-light-color': '#8a4b00',
}

export const variables: CSSVariablesResolver = () => ({
  variables: {},
  light: { ...own, ...soft },
  dark: { ...own, ...calm },
})
