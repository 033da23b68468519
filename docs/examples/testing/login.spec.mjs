// Tests a login in a browser with a sandbox of mnemogate: npx playwright test login.spec.mjs
import { expect, test } from '@playwright/test';
import { codeFor, newAccount, url } from './sandbox.mjs';

test('a user logs in with a code', async ({ page }) => {
  const { profile_mnemocode, primary_phone } = await newAccount();
  await page.goto(url);
  await page.getByLabel('Phone, email or username').fill(primary_phone);
  await page.getByRole('button', { name: 'Continue', exact: true }).click();
  await page.getByLabel('Code').fill(await codeFor(primary_phone)); // the page sends a whole code
  await expect(page.getByText(`X-Profile-Mnemocode: ${profile_mnemocode}`)).toBeVisible();
});
