// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {Authorization, SkipReason} from "../../src/gateway/Authorizations.sol";
import {Balances} from "../../src/gateway/Balances.sol";
import {DevUsdc} from "../../src/DevUsdc.sol";
import {Withdrawals} from "../../src/gateway/Withdrawals.sol";
import {GatewayTest} from "../support/GatewayTest.sol";
import {vm} from "../support/Vm.sol";

/// The trustless exit, both steps of it.
contract WithdrawTest is GatewayTest {
    function setUp() public override {
        super.setUp();
        _deposit(alice, 100 * USDC);
    }

    function test_anyoneGetsTheirMoneyOutWithoutAsking(uint256 value) public {
        value = _bound(value, 1, 100 * USDC);

        vm.expectEmit(address(gateway));
        emit Withdrawals.WithdrawalInitiated(
            USDC_ADDRESS, alice.addr, value, 100 * USDC - value, value, BLOCK + WITHDRAWAL_DELAY
        );
        _initiateWithdrawal(alice, value);
        vm.assertEq(_available(alice.addr), 100 * USDC - value);
        vm.assertEq(_withdrawing(alice.addr), value);
        vm.assertEq(gateway.withdrawableBalance(USDC_ADDRESS, alice.addr), 0);
        vm.assertEq(gateway.withdrawalBlock(USDC_ADDRESS, alice.addr), BLOCK + WITHDRAWAL_DELAY);

        vm.roll(BLOCK + WITHDRAWAL_DELAY);
        vm.assertEq(gateway.withdrawableBalance(USDC_ADDRESS, alice.addr), value);
        vm.expectEmit(address(gateway));
        emit Withdrawals.WithdrawalCompleted(USDC_ADDRESS, alice.addr, value);
        _withdraw(alice);
        vm.assertEq(usdc.balanceOf(alice.addr), value);
        vm.assertEq(_total(alice.addr), 100 * USDC - value);
        vm.assertEq(gateway.withdrawalBlock(USDC_ADDRESS, alice.addr), 0);
    }

    function test_theExitOpensAtItsBlockAndNotBefore() public {
        _initiateWithdrawal(alice, USDC);
        uint256 due = BLOCK + WITHDRAWAL_DELAY;
        for (uint256 height = BLOCK; height < due; ++height) {
            vm.roll(height);
            vm.expectRevert(abi.encodeWithSelector(Withdrawals.WithdrawalTooEarly.selector, height, due));
            _withdraw(alice);
        }
        vm.roll(due);
        _withdraw(alice);
        vm.assertEq(usdc.balanceOf(alice.addr), USDC);
    }

    function test_theExitWorksWhilePaused() public {
        _pause();
        _initiateWithdrawal(alice, 100 * USDC);
        vm.roll(BLOCK + WITHDRAWAL_DELAY);
        _withdraw(alice);
        vm.assertEq(usdc.balanceOf(alice.addr), 100 * USDC);
    }

    function test_aSecondRequestAddsAndStartsTheWaitAgain() public {
        _initiateWithdrawal(alice, 10 * USDC);
        vm.roll(BLOCK + WITHDRAWAL_DELAY);
        _initiateWithdrawal(alice, 5 * USDC);

        vm.expectRevert(
            abi.encodeWithSelector(
                Withdrawals.WithdrawalTooEarly.selector, BLOCK + WITHDRAWAL_DELAY, BLOCK + 2 * WITHDRAWAL_DELAY
            )
        );
        _withdraw(alice);
        vm.roll(BLOCK + 2 * WITHDRAWAL_DELAY);
        _withdraw(alice);
        vm.assertEq(usdc.balanceOf(alice.addr), 15 * USDC);
    }

    function test_revenueLeavesLikeAnyBalance() public {
        _settle(_pay(alice, seller.addr, 7 * USDC, 1));
        _initiateWithdrawal(seller, 7 * USDC);
        vm.roll(BLOCK + WITHDRAWAL_DELAY);
        _withdraw(seller);
        vm.assertEq(usdc.balanceOf(seller.addr), 7 * USDC);
    }

    function test_nothingAndTooMuchAreRefused(uint256 value) public {
        value = _bound(value, 100 * USDC + 1, type(uint256).max);
        vm.expectRevert(Withdrawals.WithdrawalValueZero.selector);
        _initiateWithdrawal(alice, 0);
        vm.expectRevert(
            abi.encodeWithSelector(Withdrawals.WithdrawalExceedsAvailable.selector, value, 100 * USDC)
        );
        _initiateWithdrawal(alice, value);
        vm.expectRevert(abi.encodeWithSelector(Withdrawals.WithdrawalNotInitiated.selector, alice.addr));
        _withdraw(alice);
        vm.expectRevert(abi.encodeWithSelector(Balances.UnsupportedToken.selector, bob.addr, USDC_ADDRESS));
        gateway.initiateWithdrawal(bob.addr, 1);
        vm.expectRevert(abi.encodeWithSelector(Balances.UnsupportedToken.selector, bob.addr, USDC_ADDRESS));
        gateway.withdraw(bob.addr);
    }

    function test_aBlockedDepositorIsPaidOnceUnblocked() public {
        _initiateWithdrawal(alice, USDC);
        vm.roll(BLOCK + WITHDRAWAL_DELAY);
        vm.prank(blacklister);
        usdc.blacklist(alice.addr);
        vm.expectRevert(abi.encodeWithSelector(DevUsdc.BlockedAddress.selector, alice.addr));
        _withdraw(alice);
        vm.assertEq(_withdrawing(alice.addr), USDC);

        vm.prank(blacklister);
        usdc.unBlacklist(alice.addr);
        _withdraw(alice);
        vm.assertEq(usdc.balanceOf(alice.addr), USDC);
    }

    function test_noGatewayHasAnExitThatNeverOpens(uint256 delay) public {
        uint256 most = gateway.WITHDRAWAL_DELAY_MAX();
        delay = _bound(delay, most + 1, type(uint256).max);
        vm.expectRevert(abi.encodeWithSelector(Withdrawals.WithdrawalDelayOutOfRange.selector, delay, most));
        _newGateway(USDC_ADDRESS, delay);
        vm.expectRevert(abi.encodeWithSelector(Withdrawals.WithdrawalDelayOutOfRange.selector, 0, most));
        _newGateway(USDC_ADDRESS, 0);
    }

    // Withdrawal racing settlement. Alice is served, then starts a withdrawal of everything before the payment is
    // settled. The payment reaches into what is withdrawing; she gets the rest.
    function test_attack_aWithdrawalCannotOutrunAPayment(uint256 value) public {
        value = _bound(value, 1, 100 * USDC - 1);
        Authorization memory served = _pay(alice, seller.addr, value, 1);
        _initiateWithdrawal(alice, 100 * USDC);

        _settle(served);
        vm.assertEq(_available(seller.addr), value);
        vm.assertEq(_withdrawing(alice.addr), 100 * USDC - value);

        vm.roll(BLOCK + WITHDRAWAL_DELAY);
        _withdraw(alice);
        vm.assertEq(usdc.balanceOf(alice.addr), 100 * USDC - value);
        vm.assertEq(_total(alice.addr), 0);
    }

    function test_attack_aPaymentTakesWhatIsAvailableFirst() public {
        _initiateWithdrawal(alice, 60 * USDC);
        _settle(_pay(alice, seller.addr, 50 * USDC, 1));
        vm.assertEq(_available(alice.addr), 0);
        vm.assertEq(_withdrawing(alice.addr), 50 * USDC);
        vm.assertEq(gateway.withdrawalBlock(USDC_ADDRESS, alice.addr), BLOCK + WITHDRAWAL_DELAY);
    }

    // A payment that eats the whole withdrawal ends it. A later deposit does not find an exit already open.
    function test_attack_anEatenWithdrawalLeavesNoOpenDoor() public {
        _initiateWithdrawal(alice, 100 * USDC);
        _settle(_pay(alice, seller.addr, 100 * USDC, 1));
        vm.assertEq(gateway.withdrawalBlock(USDC_ADDRESS, alice.addr), 0);

        vm.roll(BLOCK + WITHDRAWAL_DELAY);
        _deposit(alice, 10 * USDC);
        vm.expectRevert(abi.encodeWithSelector(Withdrawals.WithdrawalNotInitiated.selector, alice.addr));
        _withdraw(alice);
        _initiateWithdrawal(alice, 10 * USDC);
        vm.expectRevert(
            abi.encodeWithSelector(
                Withdrawals.WithdrawalTooEarly.selector, BLOCK + WITHDRAWAL_DELAY, BLOCK + 2 * WITHDRAWAL_DELAY
            )
        );
        _withdraw(alice);
    }

    // The operator that settles after the money has left has waited too long: the payment is skipped, nobody else pays.
    function test_attack_aPaymentAfterTheExitIsSkipped() public {
        Authorization memory late = _pay(alice, seller.addr, 100 * USDC, 1);
        _deposit(bob, 100 * USDC);
        _initiateWithdrawal(alice, 100 * USDC);
        vm.roll(BLOCK + WITHDRAWAL_DELAY);
        _withdraw(alice);
        _assertSkipped(late, SkipReason.InsufficientBalance, 100 * USDC, 0);
        vm.assertEq(_total(bob.addr), 100 * USDC);
    }
}
